package daemon

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/ipvs"
)

func TestFirstPass(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start(conf(service(vip, server(rs2, 3), server(rs3, 2), server(rs4, 1))))
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=3 10.0.0.3:80=2 10.0.0.4:80=1")
	})
}

// Whoever looks does not hold up the first pass.
func TestFirstPassAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var reads int
		r.table.SetHooks(hooks(func(ipvs.Op) {
			time.Sleep(10 * time.Second)
			reads = r.table.Requests().Reads
		}))
		p := r.begin(conf(service(vip, server(rs2, 3))))
		after(time.Minute)
		// One looks for servers that left the configuration, one is the pass's.
		if reads != 2 {
			t.Errorf("reads before the last write of the first pass: want 2, got %d", reads)
		}
		if st := p.mustStatus(); st.Mirror.CountsAgeSeconds < 0 {
			t.Errorf("mirror after the first pass: want counts, got %+v", st.Mirror)
		}
	})
}

func TestFailureAndRecovery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start(conf(service(vip, r.checked(rs2, 3), r.checked(rs3, 2))))
		after(decided)
		r.net.set(rs2, errRefused)
		after(decided)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=0 10.0.0.3:80=2")
		r.net.set(rs2, nil)
		after(decided)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=3 10.0.0.3:80=2")
	})
}

// A failed server that is removed is still checked and comes back
// (kube-vip#875).
func TestFailureRemove(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		rs := r.checked(rs2, 3)
		rs.OnFailure = config.OnFailureRemove
		r.start(conf(service(vip, rs, r.checked(rs3, 2))))
		r.net.set(rs2, errRefused)
		after(decided)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.3:80=2")
		before := r.net.checked(rs2)
		after(10 * time.Second)
		if n := r.net.checked(rs2) - before; n < 5 {
			t.Errorf("checks of the removed server in 10 s: want at least 5, got %d", n)
		}
		r.net.set(rs2, nil)
		after(decided)
		r.wantTable("TCP 192.0.2.1:80 wlc: 10.0.0.2:80=3 10.0.0.3:80=2")
	})
}
