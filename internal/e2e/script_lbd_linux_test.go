package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
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
	if s.engine == UserspaceEngine && !engineKey.MatchString(text) {
		text += "engine: userspace\n" // at the end: errors name lines
	}
	if !stateFileKey.MatchString(text) {
		text += "state_file: " + filepath.Join(s.dir, "state.json") + "\n" // none of the host's
	}
	return "", os.WriteFile(s.daemon.Config, []byte(text), 0o644)
}

// engineKey finds a configuration that names an engine.
var engineKey = regexp.MustCompile(`(?m)^engine:`)

// stateFileKey finds one that names a state file.
var stateFileKey = regexp.MustCompile(`(?m)^state_file:`)

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
		return "", s.waitLog(re)
	default:
		return "", usage(form)
	}
}

// waitLog waits for a line in lbd's log. lbd tells what the table has
// acknowledged, so that the table shows it first, and a pipe is in between.
func (s *script) waitLog(re *regexp.Regexp) error {
	deadline := time.Now().Add(retryFor)
	for {
		log := s.daemon.Log()
		switch {
		case re.MatchString(log):
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("no %q in lbd's log:\n%s", re, log)
		}
		time.Sleep(retryPause)
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

func cmdActive(s *script, _ []string) (string, error) {
	t, err := s.daemon.Table()
	n := 0
	for _, svc := range t {
		for _, r := range svc.Servers {
			n += r.Active
		}
	}
	return fmt.Sprintf("active %d\n", n), err
}

// compare prints the table, or compares it with a file.
func (s *script) compare(args []string, text func(Table) string) (string, error) {
	t, err := s.daemon.Table()
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
	stop func() (looks int, err error)
	// args are those of compare.
	args []string
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
		looks, err := w.stop()
		if err == nil && looks < 2 {
			err = fmt.Errorf("steady looked %d times only", looks)
		}
		if err != nil {
			return "", err
		}
		return s.compare(w.args, Table.String)
	}
	if _, err := s.compare(args, Table.String); err != nil {
		return "", err
	}
	stop, err := s.daemon.WatchRules()
	if err != nil {
		return "", err
	}
	s.steady = &watch{stop, args}
	return "", nil
}
