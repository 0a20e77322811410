package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// ownClock reports whether the wall clock is the test's to set: in the guest of
// the VM rig, and nowhere else.
func ownClock() bool {
	name, err := os.Hostname()
	if err != nil || name != "lbd-vm" {
		return false
	}
	first, err := os.Readlink("/proc/1/exe")
	return err == nil && first == "/init"
}

// wallClock is held by each scenario that runs, and by one alone that lets the wall
// clock jump: the others would find what lbd wrote a day older than it is.
var wallClock sync.RWMutex

// cmdClock lets the wall clock jump. On a host, whose clock it leaves alone, lbd
// must be dead: to the next one it is the same if all that was written down is from
// so much earlier or later.
func cmdClock(s *script, args []string) (string, error) {
	if len(args) != 1 {
		return "", usage("clock alone|+TIME|-TIME")
	}
	if args[0] == "alone" {
		if !ownClock() || s.alone || s.daemon.Running() {
			return "", usage("[clock] clock alone, once, while lbd does not run")
		}
		wallClock.RUnlock()
		wallClock.Lock()
		s.alone = true
		return "", nil
	}
	d, err := time.ParseDuration(args[0])
	if err != nil {
		return "", err
	}
	if ownClock() {
		if !s.alone {
			return "", errors.New("the clock is all scenarios', and this one is not alone")
		}
		s.jumped += d
		return "", jump(d)
	}
	if s.daemon.Running() {
		return "", errors.New("the clock is the host's, and lbd runs")
	}
	return "", s.rewriteState(func(text string) string { return shiftTimes(text, -d) })
}

// jump sets the wall clock. Other clocks go on.
func jump(d time.Duration) error {
	ts := unix.NsecToTimespec(time.Now().Add(d).UnixNano())
	return unix.ClockSettime(unix.CLOCK_REALTIME, &ts)
}

// cmdReboot makes what lbd, which is dead, left behind what a reboot would have
// made of it: the engine's table and the run directory are gone, and the state file
// is from another boot, as old as is said.
func cmdReboot(s *script, args []string) (string, error) {
	if len(args) != 1 || s.daemon.Running() {
		return "", usage("reboot AGE, while lbd is dead")
	}
	age, err := time.ParseDuration(args[0])
	if err != nil {
		return "", err
	}
	if err := os.RemoveAll(s.daemon.RunDir()); err != nil {
		return "", err
	}
	wipe := [][]string{{"ipvsadm", "-C"}}
	if s.engine == UserspaceEngine {
		wipe = [][]string{{"nft", "flush", "ruleset"}, {"conntrack", "-F"}}
	}
	for _, w := range wipe {
		if _, err := runBounded(s.lab.Balancer, exec.Command(w[0], w[1:]...)); err != nil {
			return "", err
		}
	}
	return "", s.rewriteState(func(text string) string {
		return shiftTimes(bootID.ReplaceAllString(text, `"boot_id": "another"`), -age)
	})
}

// rewriteState changes the state file, if there is one.
func (s *script) rewriteState(change func(text string) string) error {
	path := filepath.Join(s.dir, "state.json")
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	text := change(string(b))
	if text == string(b) {
		return fmt.Errorf("%s says nothing of a time:\n%s", path, b)
	}
	return os.WriteFile(path, []byte(text), 0o600)
}

var (
	bootID   = regexp.MustCompile(`"boot_id": *"[^"]*"`)
	timeText = regexp.MustCompile(`"\d{4}-\d\d-\d\dT[^"]*"`)
)

// shiftTimes moves all times in a text of JSON.
func shiftTimes(text string, d time.Duration) string {
	return timeText.ReplaceAllStringFunc(text, func(quoted string) string {
		t, err := time.Parse(`"`+time.RFC3339Nano+`"`, quoted)
		if err != nil {
			return quoted
		}
		return t.Add(d).Format(`"` + time.RFC3339Nano + `"`)
	})
}
