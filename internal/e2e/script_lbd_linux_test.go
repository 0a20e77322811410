package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"
)

func cmdConfig(s *script, args []string) (string, error) {
	if len(args) != 1 {
		return "", usage("config FILE")
	}
	b, err := os.ReadFile(s.path(args[0]))
	if err != nil {
		return "", err
	}
	text := strings.NewReplacer("$WORK", s.dir, "$NETNS", s.lab.Balancer.Path()).Replace(string(b))
	return "", os.WriteFile(s.daemon.Config, []byte(text), 0o644)
}

func cmdLBD(s *script, args []string) (string, error) {
	const form = "lbd start [NODE]|kill|stop|hup|run ARGUMENT...|log REGEXP"
	if len(args) == 0 {
		return "", usage(form)
	}
	switch args[0] {
	case "start":
		if len(args) == 2 {
			s.daemon.NS = s.node(args[1])
		}
		return "", s.daemon.Start()
	case "kill":
		if !s.daemon.Running() {
			return "", fmt.Errorf("lbd does not run\n%s", s.daemon.Log())
		}
		s.daemon.Kill()
		return "", nil
	case "stop":
		return "", s.daemon.Stop()
	case "hup":
		return "", s.daemon.Reload()
	case "run":
		return runBounded(s.daemon.NS, s.daemon.Command(args[1:]...))
	case "log":
		if len(args) != 2 {
			return "", usage(form)
		}
		re, err := regexp.Compile("(?m)" + args[1])
		if err != nil {
			return "", err
		}
		if log := s.daemon.Log(); !re.MatchString(log) {
			return "", fmt.Errorf("no %q in lbd's log:\n%s", args[1], log)
		}
		return "", nil
	default:
		return "", usage(form)
	}
}

func cmdIpvsctl(s *script, args []string) (string, error) {
	socket := filepath.Join(s.dir, "lbd.sock")
	cmd := exec.Command(s.ipvsctl, append([]string{"--socket", socket}, args...)...)
	cmd.Dir = s.dir
	return runBounded(s.lab.Balancer, cmd)
}

func cmdTable(s *script, args []string) (string, error)  { return s.compare(args, Table.String) }
func cmdCounts(s *script, args []string) (string, error) { return s.compare(args, Table.WithCounts) }

// compare prints the table, or compares it with a file.
func (s *script) compare(args []string, text func(Table) string) (string, error) {
	t, err := ReadTable(s.lab.Balancer)
	if err != nil {
		return "", err
	}
	if len(args) > 0 && args[0] == "-sorted" {
		args = args[1:]
		for _, svc := range t {
			slices.SortFunc(svc.Servers, func(a, b TableServer) int { return a.Address.Compare(b.Address) })
		}
	}
	got := text(t)
	if len(args) == 0 {
		return got, nil
	}
	want, err := os.ReadFile(s.path(args[0]))
	if err != nil {
		return "", err
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		return got, fmt.Errorf("table differs from %s (-want +got)\n%s\n%s", args[0], diff, s.daemon.Log())
	}
	return got, nil
}

// watch sees that the table does not change.
type watch struct {
	quit chan struct{}
	done sync.WaitGroup
	err  error
	seen int
}

func (w *watch) stop() {
	close(w.quit)
	w.done.Wait()
}

func cmdSteady(s *script, args []string) (string, error) {
	if len(args) != 1 {
		return "", usage("steady FILE | steady -stop")
	}
	if args[0] == "-stop" {
		if s.steady == nil {
			return "", fmt.Errorf("steady was not started")
		}
		w := s.steady
		s.steady = nil
		w.stop()
		if w.err == nil && w.seen < 2 {
			return "", fmt.Errorf("steady looked %d times only", w.seen)
		}
		return "", w.err
	}
	if _, err := s.compare(args, Table.String); err != nil {
		return "", err
	}
	w := &watch{quit: make(chan struct{})}
	s.steady = w
	w.done.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for w.err == nil {
			_, w.err = s.compare(args, Table.String)
			w.seen++
			select {
			case <-tick.C:
			case <-w.quit:
				return
			}
		}
	})
	return "", nil
}
