package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/internal/daemon/fleet"
)

// commandLog is the commands that ran.
type commandLog struct {
	mu   sync.Mutex
	runs []string
	// running and most count commands at the same time.
	running, most int
	// takes is how long a command takes, err what comes of it.
	takes time.Duration
	err   error
}

func (l *commandLog) run(ctx context.Context, args, env []string) (string, error) {
	l.mu.Lock()
	l.runs = append(l.runs, strings.Join(slices.Concat(env, args), " "))
	l.running++
	l.most = max(l.most, l.running)
	takes, err := l.takes, l.err
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		l.running--
		l.mu.Unlock()
	}()
	select {
	case <-time.After(takes):
		return "said", err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// ran returns the commands since the last call.
func (l *commandLog) ran() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	runs := l.runs
	l.runs = nil
	return runs
}

// announced is a service with two servers that announces its quorum of 1.
func announced(r *rig, addr string) config.VirtualService {
	vs := service(addr, r.checked(rs2, 3), r.checked(rs3, 2))
	vs.Quorum = config.Quorum{Up: 1, OnUp: []string{"/announce", addr}, OnDown: []string{"/withdraw", addr}}
	return vs
}

func wantRuns(t *testing.T, l *commandLog, what string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, l.ran()); diff != "" {
		t.Errorf("commands %s (-want +got):\n%s", what, diff)
	}
}

const (
	heldRun = "LBD_SERVICE=web-192.0.2.1:80 LBD_KEY=TCP 192.0.2.1:80 LBD_QUORUM=held /announce 192.0.2.1:80"
	lostRun = "LBD_SERVICE=web-192.0.2.1:80 LBD_KEY=TCP 192.0.2.1:80 LBD_QUORUM=lost /withdraw 192.0.2.1:80"
)

func TestQuorumCommands(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, l := newRig(t), &commandLog{}
		r.command = l.run
		r.net.slow(500 * time.Millisecond)
		p := r.start(conf(announced(r, vip)))
		wantRuns(t, l, "before the first result")
		after(2 * time.Second)
		wantRuns(t, l, "at the start", heldRun)
		r.net.set(rs2, errRefused)
		after(decided)
		wantRuns(t, l, "with one server down")
		r.net.set(rs3, errRefused)
		after(decided)
		wantRuns(t, l, "with both down", lostRun)
		after(time.Minute)
		wantRuns(t, l, "while nothing changes")

		// A new lbd has told nobody anything.
		p.kill()
		p = r.start(conf(announced(r, vip)))
		wantRuns(t, l, "after a restart", lostRun)
		r.net.set(rs3, nil)
		after(decided)
		wantRuns(t, l, "with one up again", heldRun)

		// A reload that changes nothing of it tells nothing, one with another
		// quorum does.
		if err := p.switchTo(conf(announced(r, vip))); err != nil {
			t.Fatal(err)
		}
		wantRuns(t, l, "after a reload")
		vs := announced(r, vip)
		vs.Quorum.Up = 5
		if err := p.switchTo(conf(vs)); err != nil {
			t.Fatal(err)
		}
		wantRuns(t, l, "after a reload with another quorum", lostRun)
		// A service that left and came back is told anew.
		if err := errors.Join(p.switchTo(conf()), p.switchTo(conf(vs))); err != nil {
			t.Fatal(err)
		}
		wantRuns(t, l, "after the service left and came back", lostRun)
	})
}

// A command that hangs delays no weight, and what happens meanwhile is told once,
// as it is in the end.
func TestQuorumCommandHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, l := newRig(t), &commandLog{takes: time.Hour}
		r.command = l.run
		r.start(conf(announced(r, vip), announced(r, vip2)))
		after(decided)
		wantRuns(t, l, "at the start", heldRun)
		for range 3 {
			r.net.set(rs2, errRefused)
			r.net.set(rs3, errRefused)
			after(decided)
			r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=0 10.0.0.3:80=0", "TCP 192.0.2.2:80 wlc: 10.0.0.2:80=0 10.0.0.3:80=0")
			r.net.set(rs2, nil)
			r.net.set(rs3, nil)
			after(decided)
		}
		wantRuns(t, l, "while one hangs")
		after(2*hookTimeout + time.Second)
		wantRuns(t, l, "of the other service, after the first was ended",
			strings.ReplaceAll(strings.ReplaceAll(heldRun, "192.0.2.1:80", vip2), "web-"+vip, "web-"+vip2))
		if !strings.Contains(r.log.String(), `msg="command failed" service=web-192.0.2.1:80 quorum=held command=/announce took=30s err="context deadline exceeded"`) {
			t.Errorf("log of the command that hung:\n%s", r.log)
		}
	})
}

// One service that never rests does not keep the others from being told, and never
// do two commands run at a time.
func TestQuorumCommandsInTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &commandLog{takes: time.Second, err: errors.New("exit status 1")}
		hook := func(addr string, flip int) quorumHook {
			return quorumHook{service: addr, key: key(addr), quorum: fleet.QuorumHeld + fleet.QuorumState(flip%2), args: []string{fmt.Sprint("/", addr)}}
		}
		var h *quorumHooks
		flips := 0
		h = newQuorumHooks(slog.New(slog.DiscardHandler), func(ctx context.Context, args, env []string) (string, error) {
			// Whenever its command runs the service has changed again.
			if args[0] == "/"+vip {
				flips++
			}
			h.want([]quorumHook{hook(vip, flips), hook(vip2, 0)})
			return l.run(ctx, args, env)
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- h.work(ctx) }()
		h.want([]quorumHook{hook(vip, 0), hook(vip2, 0)})
		after(10 * time.Second)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		runs := l.ran()
		others := slices.IndexFunc(runs, func(r string) bool { return strings.HasSuffix(r, "/"+vip2) })
		if others != 1 || len(runs) < 9 || l.most != 1 {
			t.Errorf("commands: want that of the service that rests second of 9 or more, one at a time, got it at %d, %d at a time:\n%s",
				others, l.most, strings.Join(runs, "\n"))
		}
	})
}

// Only a side may have a command.
func TestQuorumCommandOfOneSide(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, l := newRig(t), &commandLog{}
		r.command = l.run
		vs := announced(r, vip)
		vs.Quorum.OnUp = nil
		r.start(conf(vs))
		after(decided)
		wantRuns(t, l, "at the start")
		r.net.set(rs2, errRefused)
		r.net.set(rs3, errRefused)
		after(decided)
		wantRuns(t, l, "with both down", lostRun)
	})
}

// The quorum with its hysteresis is remembered over kill -9, and so is that the
// backup servers are in: none of it is news after a restart.
func TestPoliciesSurviveKill(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		vs := service(vip, r.checked(rs2, 3), r.checked(rs3, 2))
		vs.Quorum = config.Quorum{Up: 3, Hysteresis: 2}
		vs.Backup = []config.RealServer{server(rs4, 1)}
		p := r.start(conf(vs))
		after(decided)
		r.net.set(rs2, errRefused)
		r.net.set(rs3, errRefused)
		after(decided)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=0 10.0.0.3:80=0 10.0.0.4:80=1")
		r.net.set(rs2, nil)
		after(decided)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=0 10.0.0.3:80=0 10.0.0.4:80=1")
		p.kill()
		before := len(r.log.String())
		r.start(conf(vs))
		after(decided)
		// 3 would do for a start, and not for a quorum that was lost.
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=0 10.0.0.3:80=0 10.0.0.4:80=1")
		if log := r.log.String()[before:]; strings.Contains(log, `msg="quorum`) || strings.Contains(log, `msg="backup`) {
			t.Errorf("log of the restart: want nothing of quorum and backup servers, got\n%s", log)
		}
		r.net.set(rs3, nil)
		after(decided)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=3 10.0.0.3:80=2 10.0.0.4:80=0")
		for _, want := range []string{
			`level=INFO msg="quorum held" service=web-192.0.2.1:80 reason="weight 5, wanted 5"`,
			`level=INFO msg="backup servers out" service=web-192.0.2.1:80`,
		} {
			if log := r.log.String()[before:]; !strings.Contains(log, want) {
				t.Errorf("log: want %s, got\n%s", want, log)
			}
		}
	})
}

// Backup servers that come, leave and change sides by a reload while they are in:
// the table follows at once, and what was said of the servers goes with them.
func TestBackupReloadedWhileIn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		with := func(servers, backup []config.RealServer) *config.Config {
			vs := service(vip, servers...)
			vs.Backup = backup
			return conf(vs)
		}
		list := func(l ...config.RealServer) []config.RealServer { return l }
		first, sorry := r.checked(rs2, 3), r.checked(rs4, 1)
		p := r.start(with(list(first), list(sorry)))
		r.net.set(rs2, errRefused)
		after(decided)
		// want has the weights of the two, -1 for one that is not there.
		weights := func(name string, want [2]int) {
			t.Helper()
			if got := [2]int{r.weightOf(rs2), r.weightOf(rs4)}; got != want {
				t.Errorf("%s: want weights %v, got %v", name, want, got)
			}
		}
		step := func(name string, c *config.Config, want [2]int) {
			t.Helper()
			if err := p.switchTo(c); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			weights(name, want)
			after(time.Minute)
			if err := p.mustStatus().Sync.LastError; err != "" {
				t.Errorf("%s: %s", name, err)
			}
		}
		weights("failed", [2]int{0, 1})
		step("backup server removed", with(list(first), nil), [2]int{0, 0})
		weights("its drain is over", [2]int{0, -1})
		step("added", with(list(first), list(sorry)), [2]int{0, 1})
		step("becomes one of the others", with(list(first, sorry), nil), [2]int{0, 1})
		step("who failed becomes the backup server", with(list(sorry), list(first)), [2]int{0, 1})
		step("all others removed", with(nil, list(sorry)), [2]int{0, 1})
		step("nobody left", with(nil, nil), [2]int{-1, 0})
		step("all again, and failed still", with(list(first), list(sorry)), [2]int{0, 1})
		p.kill()
		p = r.start(with(list(first), nil))
		after(time.Minute)
		weights("after a restart", [2]int{0, -1})
		r.net.set(rs2, nil)
		after(decided)
		step("service removed", conf(), [2]int{0, -1})
		if s := p.mustStatus(); s.Services.Total != 0 || len(s.Foreign) != 0 {
			t.Errorf("want no service, got %+v, foreign %q", s.Services, s.Foreign)
		}
	})
}
