package daemon

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/healthcheck/execcheck"
	"github.com/lbd-project/lbd/internal/command"
	"github.com/lbd-project/lbd/internal/config"
)

// withPrograms is a configuration that runs four programs, one of them for many.
func withPrograms(r *rig) *config.Config {
	exec := func(user string, args ...string) config.RealServer {
		rs := r.checked(rs2, 1)
		rs.Probes[0].Method = execcheck.Check{Args: args, User: user}
		return rs
	}
	a, b := service(vip, exec("", "/bin/probe", "-a"), exec("", "/bin/probe", "-b"), exec("nobody", "/bin/probe")), service(vip2, server(rs3, 1))
	a.Quorum = config.Quorum{OnUp: []string{"/bin/up"}, OnDown: []string{"/bin/down", "x"}}
	b.Backup = []config.RealServer{exec("", "/bin/sorry")}
	return conf(a, b)
}

func TestProgramWarnings(t *testing.T) {
	p := newPrograms(func(s command.Spec) error {
		if s.Args[0] == "/bin/up" {
			return nil
		}
		return errors.New("bad")
	})
	want := []string{
		"program /bin/down (on_down of web-192.0.2.1:80, runs as lbd's own user): bad",
		"program /bin/probe (check of web-192.0.2.1:80, runs as lbd's own user): bad",
		"program /bin/probe (check of web-192.0.2.1:80, runs as user nobody): bad",
		"program /bin/sorry (check of web-192.0.2.2:80, runs as lbd's own user): bad",
	}
	if diff := cmp.Diff(want, p.warnings(withPrograms(newRig(t)))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := p.warnings(conf(service(vip, server(rs2, 1)))); got != nil {
		t.Errorf("no programs: want nothing, got %q", got)
	}
}

// A file system that hangs holds up one look, and is asked once.
func TestProgramWarningsHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		var asked atomic.Int32
		p := newPrograms(func(command.Spec) error {
			asked.Add(1)
			<-answer
			return nil
		})
		c := withPrograms(newRig(t))
		for range 3 {
			if got := p.warnings(c); len(got) != 1 {
				t.Errorf("while it hangs: want one warning, got %q", got)
			}
		}
		if n := asked.Load(); n != 1 {
			t.Errorf("want one look at a file system that hangs, got %d", n)
		}
		close(answer)
		synctest.Wait()
		if got := p.warnings(c); len(got) != 0 {
			t.Errorf("once it answers: want nothing, got %q", got)
		}
	})
}

// Who looks while another one does waits for his turn: that is no file system that
// hangs.
func TestProgramWarningsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPrograms(func(command.Spec) error {
			time.Sleep(programPatience / 20)
			return nil
		})
		c := withPrograms(newRig(t))
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if got := p.warnings(c); len(got) != 0 {
					t.Errorf("want nothing, got %q", got)
				}
			})
		}
		wg.Wait()
	})
}
