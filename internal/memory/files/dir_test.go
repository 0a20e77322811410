package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

const (
	fileName = "state.json"
	oldText  = "the old state\n"
	newText  = "the new state, which is longer\n"
)

// In a process that the test kills, killAt is the step at which, killDir where.
const (
	killAt  = "LBD_TEST_KILL_AT"
	killDir = "LBD_TEST_KILL_DIR"
)

// A kill -9 at any step of a Replace leaves the old file or the new one, and the
// next start removes what else is left.
func TestReplaceKilled(t *testing.T) {
	if step := os.Getenv(killAt); step != "" {
		replaceAndDie(t, step)
		return
	}
	left := false
	for step := 1; ; step++ {
		dir := filepath.Join(t.TempDir(), "lbd")
		d, err := Open(dir, 0o700)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		if err := d.Replace(fileName, []byte(oldText)); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(os.Args[0], "-test.run=^TestReplaceKilled$")
		cmd.Env = append(os.Environ(), killAt+"="+strconv.Itoa(step), killDir+"="+dir)
		out, err := cmd.CombinedOutput()
		if err == nil { // past the last step
			if step < 4 {
				t.Fatalf("Replace has %d steps only", step-1)
			}
			break
		}
		var ee *exec.ExitError
		if !errors.As(err, &ee) || ee.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("step %d: %v\n%s", step, err, out)
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		left = left || len(entries) > 1
		if b, err := d.Read(fileName); err != nil || string(b) != oldText && string(b) != newText {
			t.Errorf("killed at step %d: want the old or the new file, got %q, %v", step, b, err)
		}
		if err := d.RemoveLeftovers(fileName); err != nil {
			t.Fatal(err)
		}
		if entries, err = os.ReadDir(dir); err != nil || len(entries) != 1 {
			t.Errorf("killed at step %d: want one file, got %v, %v", step, entries, err)
		}
	}
	if !left {
		t.Error("no kill left a temporary file: the test kills at the wrong moments")
	}
}

// replaceAndDie is the process that is killed.
func replaceAndDie(t *testing.T, at string) {
	n, err := strconv.Atoi(at)
	if err != nil {
		t.Fatal(err)
	}
	d, err := Open(os.Getenv(killDir), 0o700)
	if err != nil {
		t.Fatal(err)
	}
	d.step = func(string) error {
		if n--; n == 0 {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		return nil
	}
	if err := d.Replace(fileName, []byte(newText)); err != nil {
		t.Fatal(err)
	}
}

// A Replace that fails at any step says so and leaves nothing of itself.
func TestReplaceFails(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "lbd")
	d, err := Open(dir, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.Replace(fileName, []byte(oldText)); err != nil {
		t.Fatal(err)
	}
	for step := 1; step <= 3; step++ {
		n := step
		d.step = func(what string) error {
			if n--; n == 0 {
				return &fs.PathError{Op: "write", Path: fmt.Sprint("a random name ", step), Err: syscall.ENOSPC}
			}
			return nil
		}
		err := d.Replace(fileName, []byte(newText))
		if want := "write " + d.Path(fileName) + ": no space left on device"; err == nil || err.Error() != want || !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("step %d: want %s, got %v", step, want, err)
		}
		if b, err := d.Read(fileName); err != nil || string(b) != oldText {
			t.Errorf("step %d: want the old file, got %q, %v", step, b, err)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
			t.Errorf("step %d: want one file, got %v, %v", step, entries, err)
		}
	}
}

func TestOpenMakesTheDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "lbd")
	d, err := Open(dir, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("want mode 0700, got %v, %v", info.Mode(), err)
	}
	if _, err := Open(filepath.Join(dir, "no", "such"), 0o700); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory in none: want ErrNotExist, got %v", err)
	}
}

// Only what a Replace of this file makes is removed.
func TestRemoveLeftovers(t *testing.T) {
	dir := t.TempDir()
	os.Chmod(dir, 0o700)
	d, err := Open(dir, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, name := range []string{"." + fileName + "123", fileName, "." + fileName, "." + fileName + ".lock", "." + fileName + "1x", "other"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.RemoveLeftovers(fileName); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if want := ".state.json .state.json.lock .state.json1x other state.json"; err != nil || strings.Join(got, " ") != want {
		t.Errorf("want %s, got %v, %v", want, got, err)
	}
}
