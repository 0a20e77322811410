package daemon

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const (
	noneUsable  = `level=WARN msg="virtual service has no usable real server" service=web-` + vip
	usableAgain = `level=INFO msg="virtual service has a usable real server again" service=web-` + vip
)

// wantLogged compares how often lines are in the log.
func (r *rig) wantLogged(line string, want int) {
	r.t.Helper()
	if got := strings.Count(r.log.String(), line); got != want {
		r.t.Errorf("want %d times %s, got %d in:\n%s", want, line, got, r.log)
	}
}

// A service that loses its last usable real server is in the log, once, and again
// when it has one.
func TestLastServerDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start(conf(service(vip, r.checked(rs2, 3), r.checked(rs3, 2), server(rs4, 0)), service(vip2), service("192.0.2.3:80", server(rs2, 0))))
		r.net.set(rs2, errRefused)
		after(decided)
		r.wantLogged(noneUsable, 0)
		r.net.set(rs3, errRefused)
		after(time.Minute)
		r.wantLogged(noneUsable, 1)
		r.wantLogged(usableAgain, 0)
		r.net.set(rs2, nil)
		after(time.Minute)
		r.wantLogged(usableAgain, 1)
		// Nothing of services that the file gives no usable server.
		r.wantLogged("has no usable real server", 1)
	})
}

// What the table has not acknowledged is not in the log.
func TestLastServerDownUnacknowledged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start(conf(service(vip, r.checked(rs2, 3))))
		after(decided)
		r.table.SetAvailable(false)
		r.net.set(rs2, errRefused)
		after(time.Minute)
		r.wantLogged(noneUsable, 0)
		r.table.SetAvailable(true)
		after(time.Minute)
		r.wantLogged(noneUsable, 1)
	})
}

// A service that the table takes late has not been without a real server before.
func TestFirstServerLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.saveErr = errRefused // nothing can be claimed
		r.start(conf(service(vip, r.checked(rs2, 3))))
		r.mu.Lock()
		r.saveErr = nil
		r.mu.Unlock()
		after(time.Minute)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=3")
		r.wantLogged(usableAgain, 0)
		r.net.set(rs2, errRefused)
		after(time.Minute)
		r.wantLogged(noneUsable, 1)
	})
}

// A start with a server that was down says so, and a service that leaves the file
// is no alarm.
func TestLastServerDownBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := conf(service(vip, r.checked(rs2, 3)))
		p := r.start(c)
		r.net.set(rs2, errRefused)
		after(decided)
		r.wantLogged(noneUsable, 1)
		p.kill()
		p = r.start(c)
		r.wantLogged(noneUsable, 2)
		r.net.set(rs2, nil)
		after(time.Minute)
		if err := p.switchTo(conf()); err != nil {
			t.Fatal(err)
		}
		after(time.Minute)
		r.wantLogged(noneUsable, 2)
	})
}
