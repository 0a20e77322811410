package daemon

import (
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/internal/config"
)

// recorder is a hook that writes a line an event into a file.
func recorder(name, file string, kinds ...string) config.Hook {
	return config.Hook{
		Name: name, Timeout: time.Minute, MaxAge: time.Hour, Events: kinds,
		Exec: &config.ExecHook{Args: []string{"/bin/sh", "-c", `echo "$LBD_EVENT $LBD_STATE $LBD_SERVICE $LBD_REAL_SERVER" >>"$0"`, file}},
	}
}

func recorded(t *testing.T, file string) []string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var list []string
	for line := range strings.Lines(string(b)) {
		list = append(list, strings.TrimSpace(line))
	}
	return list
}

// Hooks hear of every event from the start on, until the owner has stopped, and a
// reload changes them before it is told.
func TestNotifications(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		dir := t.TempDir()
		one, two, three := dir+"/one", dir+"/two", dir+"/three"
		c := conf(service("192.0.2.1:80", r.checked(rs2, 3), r.checked(rs3, 2)))
		c.Hooks = []config.Hook{recorder("one", one), recorder("two", two, "real_server"),
			{Name: "bad", Timeout: time.Second, MaxAge: time.Hour, Exec: &config.ExecHook{Args: []string{"/nonexistent/page"}}}}
		p := r.start(c)
		after(decided)
		r.net.set(rs2, errRefused)
		after(decided)
		want := []string{"start", "real_server down web-192.0.2.1:80 10.0.0.2:80"}
		if diff := cmp.Diff(want, recorded(t, one)); diff != "" {
			t.Errorf("one (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(want[1:], recorded(t, two)); diff != "" {
			t.Errorf("two (-want +got):\n%s", diff)
		}
		s, err := p.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Hooks) != 3 || s.Hooks[0].Told != 2 || s.Hooks[2].Lost != 2 || len(s.Warnings) != 1 || !strings.Contains(s.Warnings[0], "exec bad fails: run /nonexistent/page") {
			t.Errorf("want three hooks and a warning of one, got %+v, %q", s.Hooks, s.Warnings)
		}

		next := *c
		next.Hooks = []config.Hook{c.Hooks[0], recorder("three", three)}
		if err := p.switchTo(&next); err != nil {
			t.Fatal(err)
		}
		r.net.set(rs2, nil)
		after(decided)
		p.kill() // which adds nothing, but tells all
		want = append(want, "reload loaded", "real_server up web-192.0.2.1:80 10.0.0.2:80")
		if diff := cmp.Diff(want, recorded(t, one)); diff != "" {
			t.Errorf("one (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(want[2:], recorded(t, three)); diff != "" {
			t.Errorf("three (-want +got):\n%s", diff)
		}
		if got := recorded(t, two); len(got) != 1 {
			t.Errorf("two has left, and got %q", got)
		}
	})
}
