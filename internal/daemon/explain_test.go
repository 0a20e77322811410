package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/internal/api"
	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/internal/userspace"
	"github.com/lbd-project/lbd/ipvs"
	"github.com/lbd-project/lbd/sched"
)

// explanationText prints an explanation: the next and why, then a real server a line.
func explanationText(x api.Explanation) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", x.Next, x.Why)
	for _, r := range x.RealServers {
		fmt.Fprintf(&b, "%s %d/%d %d+%d %q %s", r.Address, r.ProgrammedWeight, r.ConfiguredWeight, r.Active, r.Inactive, r.Score, r.State)
		if !r.Present {
			b.WriteString(" absent")
		}
		if r.Overloaded {
			b.WriteString(" overloaded")
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// What the kernel would do follows from its counts, its order and its formula.
func TestExplainKernel(t *testing.T) {
	t.Parallel()
	conns := map[string]ipvs.Conns{rs2: {Active: 2, Inactive: 600}, rs3: {Active: 4}}
	for _, tt := range []struct {
		name      string
		scheduler ipvs.Scheduler
		flags     ipvs.ServiceFlags
		overhead  sched.Overhead
		err       error
		conns     map[string]ipvs.Conns
		want      string
		warnings  int
	}{
		{name: "wlc", scheduler: "wlc", overhead: sched.OverheadTotal, conns: conns,
			want: "10.0.0.3:80: it has the least score\n" +
				"10.0.0.2:80 1/1 2+600 \"1114\" unchecked\n10.0.0.3:80 1/1 4+0 \"1028\" unchecked\n10.0.0.4:80 0/0 0+0 \"\" unchecked\n"},
		{name: "wlc before the kernel changed", scheduler: "wlc", overhead: sched.OverheadInactive, conns: conns,
			want: "10.0.0.3:80: it has the least score\n" +
				"10.0.0.2:80 1/1 2+600 \"1112\" unchecked\n10.0.0.3:80 1/1 4+0 \"1024\" unchecked\n10.0.0.4:80 0/0 0+0 \"\" unchecked\n"},
		{name: "as many connections as there can be", scheduler: "wlc", conns: map[string]ipvs.Conns{rs2: {Active: 1<<32 - 1, Inactive: 1<<32 - 1}},
			want: "10.0.0.3:80: it has the least score\n" +
				"10.0.0.2:80 1/1 4294967295+4294967295 \"1108101562110\" unchecked\n10.0.0.3:80 1/1 0+0 \"0\" unchecked\n10.0.0.4:80 0/0 0+0 \"\" unchecked\n"},
		{name: "ties", scheduler: "lc", conns: map[string]ipvs.Conns{},
			want: "10.0.0.2:80: it has the least score, as has 10.0.0.3:80, and stands before\n" +
				"10.0.0.2:80 1/1 0+0 \"0\" unchecked\n10.0.0.3:80 1/1 0+0 \"0\" unchecked\n10.0.0.4:80 0/0 0+0 \"\" unchecked\n"},
		{name: "not probed", scheduler: "sed", err: errors.New("no privilege"), conns: map[string]ipvs.Conns{rs2: {Active: 1}}, warnings: 1,
			want: "10.0.0.3:80: it has the least score\n" +
				"10.0.0.2:80 1/1 1+0 \"2\" unchecked\n10.0.0.3:80 1/1 0+0 \"1\" unchecked\n10.0.0.4:80 0/0 0+0 \"\" unchecked\n"},
		{name: "rr", scheduler: "rr",
			want: ": by turns, and the kernel engine does not tell whose it is\n" +
				"10.0.0.2:80 1/1 0+0 \"\" unchecked\n10.0.0.3:80 1/1 0+0 \"\" unchecked\n10.0.0.4:80 0/0 0+0 \"\" unchecked\n"},
		{name: "sh", scheduler: "sh", warnings: 1,
			want: ": the client's address decides\n" +
				"10.0.0.2:80 1/1 0+0 \"\" unchecked\n10.0.0.3:80 1/1 0+0 \"\" unchecked\n10.0.0.4:80 0/0 0+0 \"\" unchecked\n"},
		{name: "unknown", scheduler: "house", warnings: 1,
			want: ": by turns, and the kernel engine does not tell whose it is\n" +
				"10.0.0.2:80 1/1 0+0 \"\" unchecked\n10.0.0.3:80 1/1 0+0 \"\" unchecked\n10.0.0.4:80 0/0 0+0 \"\" unchecked\n"},
		{name: "persistent", scheduler: "wlc", flags: ipvs.FlagPersistent, conns: map[string]ipvs.Conns{rs2: {Active: 1}}, warnings: 1,
			want: "10.0.0.3:80: it has the least score\n" +
				"10.0.0.2:80 1/1 1+0 \"257\" unchecked\n10.0.0.3:80 1/1 0+0 \"0\" unchecked\n10.0.0.4:80 0/0 0+0 \"\" unchecked\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.table.SetSchedulers("wlc", "lc", "sed", "rr", "sh", "house")
				vs := service(vip, server(rs2, 1), server(rs3, 1), server("10.0.0.4:80", 0))
				vs.Scheduler, vs.Flags = tt.scheduler, tt.flags
				if tt.flags&ipvs.FlagPersistent != 0 {
					vs.Persistence.Timeout = 300e9
				}
				p := r.start(conf(vs))
				p.overhead.ask = func(context.Context) (sched.Overhead, error) { return tt.overhead, tt.err }
				for a, c := range tt.conns {
					r.table.SetConns(dkey(vip, a), c)
				}
				x, err := p.Explain(t.Context(), "TCP "+vip)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tt.want, explanationText(x)); diff != "" {
					t.Errorf("explanation (-want +got):\n%s", diff)
				}
				if len(x.Warnings) != tt.warnings {
					t.Errorf("warnings: want %d, got %q", tt.warnings, x.Warnings)
				}
				if _, err := p.Explain(t.Context(), "nope"); !errors.Is(err, api.ErrNotFound) {
					t.Errorf("absent service: want ErrNotFound, got %v", err)
				}
			})
		})
	}
}

// The chain of each weight is told, of servers that are in the table and of those
// that are not, and what the policies of the service made of them.
func TestExplainChain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		vs := service(vip, r.checked(rs2, 3), r.checked(rs3, 2))
		vs.RealServers[0].OnFailure, vs.RealServers[0].OnFailureReason = config.OnFailureRemove, "as the file says"
		vs.Backup = []config.RealServer{server(rs4, 7)}
		p := r.start(conf(vs))
		p.overhead.ask = func(context.Context) (sched.Overhead, error) { return sched.OverheadTotal, nil }
		r.net.set(rs2, errRefused)
		r.net.set(rs3, errRefused)
		after(decided)
		x, err := p.Explain(t.Context(), vs.Name)
		if err != nil {
			t.Fatal(err)
		}
		got := make(map[string]string)
		for _, rs := range x.RealServers {
			var words []string
			for _, s := range rs.Chain {
				words = append(words, fmt.Sprintf("%s %d %s", s.Step, s.Weight, s.Reason))
			}
			got[rs.Address] = strings.Join(words, ", ")
		}
		want := map[string]string{
			rs2: "configured 3 , gate 0 failed: tcp 10.0.0.2:80: connection refused, programmed 0 ",
			rs3: "configured 2 , gate 0 failed: tcp 10.0.0.3:80: connection refused, programmed 0 ",
			rs4: "configured 7 , gate 7 replaces the others, the quorum is lost: weight 0, wanted 1, programmed 7 ",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("chains (-want +got):\n%s", diff)
		}
		failures := make(map[string]string)
		for _, rs := range x.RealServers {
			failures[rs.Address] = rs.OnFailure + " " + rs.OnFailureReason
		}
		if diff := cmp.Diff(map[string]string{rs2: "remove as the file says", rs3: "quiesce ", rs4: "quiesce "}, failures); diff != "" {
			t.Errorf("on failure (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"the quorum is lost: the backup servers replace the others"}, x.Warnings); diff != "" {
			t.Errorf("warnings (-want +got):\n%s", diff)
		}
	})
}

// Whether weight 0 keeps persistent clients is told.
func TestExplainPersistent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for value, want := range map[int]string{
			0: "5m0s after its last connection, also at weight 0, as expire_quiescent_template is 0",
			1: "5m0s after its last connection, but not at weight 0",
		} {
			r := newRig(t)
			vs := service(vip, server(rs2, 1))
			vs.Flags, vs.Persistence.Timeout = ipvs.FlagPersistent, 5*time.Minute
			c := conf(vs)
			c.Sysctls = map[string]int{"expire_quiescent_template": value}
			p := r.start(c)
			p.overhead.ask = func(context.Context) (sched.Overhead, error) { return sched.OverheadTotal, nil }
			x, err := p.Explain(t.Context(), vs.Name)
			if err != nil {
				t.Fatal(err)
			}
			if len(x.Warnings) != 1 || !strings.HasSuffix(x.Warnings[0], want) {
				t.Errorf("warnings: want one that ends in %q, got %q", want, x.Warnings)
			}
			p.kill()
		}
	})
}

// The userspace engine is asked itself.
func TestExplainUserspace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.name = config.EngineUserspace
		model, err := sched.New("rr", sched.Options{})
		if err != nil {
			t.Fatal(err)
		}
		model.Insert(sched.NewServer(1, netip.MustParseAddrPort(rs2), sched.Config{Weight: 3}))
		r.equip = func(o *opened) {
			o.explain = func(_ context.Context, k ipvs.ServiceKey) (userspace.Explanation, error) {
				if k != key(vip) {
					t.Errorf("service: want %v, got %v", key(vip), k)
				}
				return userspace.Explanation{Standings: model.Standings(), Next: netip.MustParseAddrPort(rs2), Certain: true}, nil
			}
		}
		vs := service(vip, server(rs2, 3), server(rs3, 2))
		vs.Scheduler = "rr"
		p := r.start(conf(vs))
		x, err := p.Explain(t.Context(), vs.Name)
		if err != nil {
			t.Fatal(err)
		}
		want := "10.0.0.2:80: it is its turn\n10.0.0.2:80 3/3 0+0 \"\" unchecked\n10.0.0.3:80 0/2 0+0 \"\" unchecked absent\n"
		if diff := cmp.Diff(want, explanationText(x)); diff != "" {
			t.Errorf("explanation (-want +got):\n%s", diff)
		}
	})
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.name = config.EngineUserspace
		r.equip = func(o *opened) {
			o.abilities = func() []userspace.Ability {
				return []userspace.Ability{{Name: "direct routing"}, {Name: "IPVS's timeouts", Err: errors.New("no timeout objects")}}
			}
			o.warnings = func() []string { return []string{"the queue is full"} }
		}
		p := r.start(conf(service(vip, server(rs2, 1))))
		for _, tt := range []struct {
			has  sched.Overhead
			err  error
			want string
		}{
			{sched.OverheadTotal, fmt.Errorf("probe: %w", ipvs.ErrNotAvailable), "note overhead: this kernel has no IPVS to compare with; userspace.overhead is total"},
			{sched.OverheadTotal, errors.New("no privilege"), "note overhead: how this kernel's IPVS weighs connections could not be tried: no privilege"},
			{sched.OverheadInactive, nil, "warning overhead: this kernel's IPVS weighs connections by inactive, userspace.overhead by total: the two engines choose differently"},
		} {
			p.overhead.ask = func(context.Context) (sched.Overhead, error) { return tt.has, tt.err }
			d, err := p.Doctor(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range d.Findings {
				got = append(got, fmt.Sprintf("%s %s: %s", f.Level, f.Topic, f.Text))
			}
			want := []string{
				"ok engine: userspace ()", tt.want,
				"ok direct routing: works here",
				"note IPVS's timeouts: not on this host: no timeout objects",
				"ok conntrack: 50 of 200 entries (25 %)",
				"warning host: the queue is full",
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		}
	})
}
