package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// shell returns a Command of a shell script, which has as long as a busy machine may
// take to end by SIGKILL.
func shell(t *testing.T, script string, env ...string) *Command {
	t.Helper()
	c, err := New(Spec{Args: []string{"/bin/sh", "-c", script}, Env: env})
	if err != nil {
		t.Fatal(err)
	}
	c.killWait = time.Minute
	return c
}

// within returns a context that ends after d.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestRun(t *testing.T) {
	for name, tt := range map[string]struct {
		script, output string
		code           int
	}{
		"quiet":             {"exit 0", "", 0},
		"failed":            {"exit 1", "", 1},
		"highest":           {"exit 255", "", 255},
		"both outputs":      {"echo one; echo two >&2; echo three", "one\ntwo\nthree\n", 0},
		"partial line":      {"printf half; exit 3", "half", 3},
		"standard input":    {"read x; echo $?", "1\n", 0},
		"in the background": {"sleep 300 & echo started; exit 7", "started\n", 7},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := shell(t, tt.script).Run(within(t, 30*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(Result{Code: tt.code, Output: []byte(tt.output)}, r, cmp.Transformer("text", func(b []byte) string { return string(b) })); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// TestRunArguments has arguments that a shell would take apart.
func TestRunArguments(t *testing.T) {
	c, err := New(Spec{Args: []string{"/bin/echo", "$HOME", "a  b", "`id`", "*", "; exit 1"}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.Run(t.Context())
	if want := "$HOME a  b `id` * ; exit 1\n"; err != nil || string(r.Output) != want {
		t.Errorf("want %q, got %q, %v", want, r.Output, err)
	}
}

func TestRunEnvironment(t *testing.T) {
	t.Setenv("OF_THE_DAEMON", "secret")
	for name, tt := range map[string]struct {
		spec, run []string
		want      string
	}{
		"default": {nil, nil, defaultPath + "\n" + defaultLang + "\n"},
		"further": {[]string{"A=1=2"}, []string{"B="}, defaultPath + "\n" + defaultLang + "\nA=1=2\nB=\n"},
		"other":   {[]string{"LANG=de_DE", "PATH=/x", "A=1"}, []string{"A=2"}, "LANG=de_DE\nPATH=/x\nA=2\n"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := New(Spec{Args: []string{"/usr/bin/env"}, Env: tt.spec})
			if err != nil {
				t.Fatal(err)
			}
			r, err := c.Run(t.Context(), tt.run...)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, string(r.Output)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
	if _, err := shell(t, "").Run(t.Context(), "bad"); err == nil {
		t.Error("want an error for a variable without a value")
	}
}

// TestRunStartErrors has programs that cannot be started.
func TestRunStartErrors(t *testing.T) {
	text := t.TempDir() + "/text"
	if err := os.WriteFile(text, []byte("no program"), 0o755); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]error{
		"/nonexistent/program": unix.ENOENT,
		"/etc/passwd":          unix.EACCES,
		"/etc":                 unix.EACCES,
		text:                   unix.ENOEXEC,
	} {
		c, err := New(Spec{Args: []string{path}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Run(t.Context()); !errors.Is(err, want) || !errors.Is(err, ErrStart) || !strings.HasPrefix(err.Error(), "run "+path+": cannot start: ") {
			t.Errorf("%s: want %v, got %v", path, want, err)
		}
	}
}

func TestRunSignal(t *testing.T) {
	r, err := shell(t, "echo soon; kill -SEGV $$").Run(t.Context())
	want := "run /bin/sh: ended by a signal: signal: segmentation fault"
	if err == nil || !strings.HasPrefix(err.Error(), want) || string(r.Output) != "soon\n" || r.Code != 0 {
		t.Errorf("want %q, got %+v, %v", want, r, err)
	}
}

func TestRunOutputBound(t *testing.T) {
	r, err := shell(t, "yes 0123456 | head -c 3000000; echo end >&2").Run(within(t, 30*time.Second))
	if want := strings.Repeat("0123456\n", maxOutput/8); err != nil || string(r.Output) != want {
		t.Errorf("want the first %d bytes, got %d, %v", maxOutput, len(r.Output), err)
	}
}

// TestRunEnter starts the program where Enter calls for it.
func TestRunEnter(t *testing.T) {
	gone := errors.New("namespace is gone")
	c := shell(t, "echo here")
	entered := 0
	c.spec.Enter = func(start func() error) error { entered++; return start() }
	if r, err := c.Run(t.Context()); err != nil || entered != 1 || string(r.Output) != "here\n" {
		t.Errorf("want one entry, got %d, %+v, %v", entered, r, err)
	}
	c.spec.Enter = func(func() error) error { return gone }
	if _, err := c.Run(t.Context()); !errors.Is(err, gone) {
		t.Errorf("want %v, got %v", gone, err)
	}
	c.spec.Enter = func(func() error) error { return nil }
	if _, err := c.Run(t.Context()); err == nil {
		t.Error("want an error of an Enter that starts nothing")
	}
	c = shell(t, "exec sleep 300", "TAG="+tag(t))
	c.spec.Enter = func(start func() error) error { return errors.Join(start(), gone) }
	if _, err := c.Run(t.Context()); !errors.Is(err, gone) {
		t.Errorf("want %v, got %v", gone, err)
	}
	noneTagged(t, tag(t)) // though the way back failed
	noChildren(t)
}

func TestRunUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	c := shell(t, "id -u; id -g; id -G; grep ^CapEff /proc/self/status")
	c.account = &account{uid: 65534, gid: 65533, groups: []uint32{4000, 65533}}
	r, err := c.Run(t.Context())
	want := "65534\n65533\n65533 4000\nCapEff:\t0000000000000000\n"
	if err != nil || string(r.Output) != want {
		t.Errorf("want %q, got %q, %v", want, r.Output, err)
	}
	c.account = &account{uid: 65534, gid: 65533}
	r, err = c.Run(t.Context())
	want = "65534\n65533\n65533\nCapEff:\t0000000000000000\n"
	if err != nil || string(r.Output) != want {
		t.Errorf("no other groups: want %q, got %q, %v", want, r.Output, err)
	}
	// Ending another user's program takes no more.
	c = shell(t, "trap '' TERM; sleep 300", "TAG="+tag(t))
	c.account = &account{uid: 65534, gid: 65533}
	if _, err := c.Run(within(t, 50*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrStuck) {
		t.Errorf("want a deadline exceeded, got %v", err)
	}
	noneTagged(t, tag(t))
}

// startedOddly is set in the environment of this test binary when TestRunAnyStart
// has started it in an odd way.
const startedOddly = "LBD_TEST_STARTED_ODDLY"

// TestRunAnyStart starts a daemon with a low limit, another umask, directory and
// input, an ignored signal and a leaked descriptor. What it runs sees none of
// these but the limit, which Go has raised for the daemon only.
func TestRunAnyStart(t *testing.T) {
	if os.Getenv(startedOddly) != "" {
		var limit unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil || limit.Cur <= 100 {
			t.Fatalf("want Go to have raised the limit of open files above 100, got %d, %v", limit.Cur, err)
		}
		r, err := shell(t, `ulimit -Sn; umask; pwd; readlink /proc/$$/fd/0
			for fd in 3 4 5 6 7 8 9; do readlink /proc/$$/fd/$fd; done
			cut -d' ' -f5,6,7 /proc/$$/stat | sed "s/$$/own/g"`).Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("<%s>", r.Output)
		if got := currentUmask(); got != 0o077 {
			t.Errorf("want the daemon's umask to stay 0077, got %04o", got)
		}
		return
	}
	script := `ulimit -Sn 100; ulimit -Hn 4000; umask 077; cd /usr; exec 9</etc/passwd; exec "$0" -test.run='^TestRunAnyStart$' </etc/group`
	cmd := exec.Command("/bin/sh", "-c", script, os.Args[0])
	cmd.Env = append(os.Environ(), startedOddly+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	_, rest, _ := strings.Cut(string(out), "<")
	got, _, _ := strings.Cut(rest, ">")
	// The last line: group and session are its own, and there is no terminal.
	want := "100\n0022\n/\n/dev/null\nown own 0\n"
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s\n%s", d, out)
	}
}

// TestRunStuck has a program that no signal reaches.
func TestRunStuck(t *testing.T) {
	fifo := t.TempDir() + "/fifo"
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	c := shell(t, `echo waiting; read x <"$0"`)
	c.spec.Args = append(c.spec.Args, fifo)
	c.kill = func(int, syscall.Signal) error { return unix.EPERM }
	c.killWait = killWait
	begun := time.Now()
	r, err := c.Run(within(t, time.Second))
	if !errors.Is(err, ErrStuck) || !errors.Is(err, context.DeadlineExceeded) || string(r.Output) != "waiting\n" {
		t.Errorf("want %v, got %+v, %v", ErrStuck, r, err)
	}
	if took, least := time.Since(begun), grace+killWait; took < least {
		t.Errorf("gave up after %v, before %v", took, least)
	}
	begun = time.Now()
	if _, err := c.Run(t.Context()); !errors.Is(err, ErrStuck) || time.Since(begun) > 10*time.Second {
		t.Errorf("while it runs: want %v at once, got %v after %v", ErrStuck, err, time.Since(begun))
	}
	// Opening the other end lets the program go on and end.
	f, err := os.OpenFile(fifo, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	c.spec.Args = []string{"/bin/true"}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, err = c.Run(t.Context()); err == nil || time.Now().After(deadline) {
			break
		}
	}
	if err != nil {
		t.Errorf("want it to run again after its end, got %v", err)
	}
	noChildren(t)
}
