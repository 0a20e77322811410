package notify

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/internal/api"
	"github.com/lbd-project/lbd/internal/checktest"
	"github.com/lbd-project/lbd/internal/config"
)

func shell(args ...string) *program {
	return &program{spec: &config.ExecHook{Args: append([]string{"/bin/sh", "-c"}, args...)}}
}

// A program gets the event in its environment, each variable in one line, and
// nothing else.
func TestEnvironment(t *testing.T) {
	out := t.TempDir() + "/env"
	n := someEvents()
	n.Events = n.Events[:1]
	n.Events[0].Reason = "agent says:\r\nBcc: \x1b[31m$(id)\x00 \u2028\xff`id`"
	if again, err := shell(`env >"$0"`, out).send(t.Context(), n); err != nil || again {
		t.Fatalf("want success, got %v, %v", again, err)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		got[name] = value
	}
	var e api.Event
	if err := json.Unmarshal([]byte(got["LBD_JSON"]), &e); err != nil {
		t.Fatal(err)
	}
	want := n.Events[0]
	want.Reason = strings.ToValidUTF8(want.Reason, "\ufffd")
	if diff := cmp.Diff(want, e); diff != "" {
		t.Errorf("LBD_JSON (-want +got):\n%s", diff)
	}
	for _, name := range []string{"LBD_JSON", "PWD", "_", "SHLVL"} {
		delete(got, name)
	}
	wantEnv := map[string]string{
		"LANG": "C", "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"LBD_EVENT": "real_server", "LBD_SEQ": "8", "LBD_TIME": "2026-11-30T12:00:00.123456789Z", "LBD_SERVICE": "web",
		"LBD_KEY": "TCP 192.0.2.10:80", "LBD_REAL_SERVER": "10.0.0.2:80", "LBD_STATE": "down", "LBD_TEXT": "down, weight 0",
		"LBD_REASON": "agent says:  Bcc:  [31m$(id)   \ufffd`id`", "LBD_BY": "", "LBD_LOST": "7",
	}
	if diff := cmp.Diff(wantEnv, got); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
}

func TestProgramErrors(t *testing.T) {
	for name, tt := range map[string]struct {
		p    *program
		want string
	}{
		"status":  {shell("exit 3"), "run /bin/sh: exit status 3"},
		"says":    {shell("echo 'no\x1b route' >&2; echo more; exit 3"), "run /bin/sh: exit status 3: no? route"},
		"absent":  {&program{spec: &config.ExecHook{Args: []string{"/nonexistent/page"}}}, "run /nonexistent/page: cannot start: fork/exec /nonexistent/page: no such file or directory"},
		"user":    {&program{spec: &config.ExecHook{Args: []string{"/bin/true"}, User: "no-such-user"}}, "user no-such-user: user: unknown user no-such-user"},
		"success": {shell("exit 0"), ""},
	} {
		again, err := tt.p.send(t.Context(), someEvents())
		text := ""
		if err != nil {
			text = err.Error()
		}
		if again || text != tt.want {
			t.Errorf("%s: want %q, got %v, %q", name, tt.want, again, text)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if again, err := shell("exec sleep 300").send(ctx, someEvents()); again || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a program that hangs: got %v, %v", again, err)
	}
}

// FuzzEnvironment: whatever an event says, a program can be started with it.
func FuzzEnvironment(f *testing.F) {
	f.Add("real_server", "web", "a\x00b", "\xff\n")
	f.Add("", "", "=", "\u2028\u2029\u0085")
	f.Fuzz(func(t *testing.T, kind, service, text, reason string) {
		env, err := environment(api.Notification{Events: []api.Event{{Kind: kind, Service: service, Text: text, Reason: reason}}})
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range env {
			name, value, ok := strings.Cut(v, "=")
			if !ok || !strings.HasPrefix(name, "LBD_") || strings.ContainsAny(value, "\x00\r\n") {
				t.Errorf("%q", v)
			}
		}
	})
}

// Programs that fail leave nothing behind.
func TestProgramLeaks(t *testing.T) {
	fails, hangs := shell("exit 1"), shell("exec sleep 300")
	n := someEvents()
	checktest.Leaks(t, 100, func() {
		fails.send(t.Context(), n)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		(&program{spec: hangs.spec}).send(ctx, n)
	})
}
