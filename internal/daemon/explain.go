package daemon

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"time"

	"github.com/lbd-project/lbd/internal/api"
	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/internal/daemon/fleet"
	"github.com/lbd-project/lbd/internal/userspace"
	"github.com/lbd-project/lbd/ipvs"
	"github.com/lbd-project/lbd/sched"
)

// Explain implements api.Backend. The userspace engine is asked itself; what the
// kernel would do follows from its counts, its list order and its formula.
func (d *Daemon) Explain(ctx context.Context, name string) (api.Explanation, error) {
	v := d.owner.view.Load()
	s := v.service(name)
	if s == nil {
		return api.Explanation{}, fmt.Errorf("virtual service %q: %w", name, api.ErrNotFound)
	}
	ctx, cancel := context.WithTimeout(ctx, engineTimeout)
	defer cancel()
	x := explanation{out: api.Explanation{Service: s.Name, Key: s.ServiceKey.String(), Scheduler: string(s.Scheduler)}}
	overhead := v.loaded.Userspace.Overhead
	var err error
	if d.explainer != nil {
		x.Explanation, err = d.explainer(ctx, s.ServiceKey)
	} else {
		overhead, err = d.overhead.get(ctx)
		if err != nil {
			overhead = sched.OverheadTotal
			x.warn("how this kernel weighs connections could not be tried, %v is assumed: %v", overhead, err)
		}
		err = d.explainKernel(ctx, s, overhead, &x)
	}
	if err != nil && !errors.Is(err, ipvs.ErrServiceNotFound) {
		return api.Explanation{}, err
	}
	x.compares(s, overhead)
	x.servers(s)
	x.why(s, d.engine)
	x.cautions(s, v.loaded.Config)
	return x.out, nil
}

// service returns the service of a name, or of a key.
func (v *view) service(name string) *fleet.Service {
	if v.fleet == nil {
		return nil
	}
	for i := range v.fleet.Services {
		if s := &v.fleet.Services[i]; s.Name == name || s.ServiceKey.String() == name {
			return s
		}
	}
	return nil
}

// explanation is an api.Explanation that is being made.
type explanation struct {
	userspace.Explanation
	out api.Explanation
	// hidden says that it is by turns, and the engine does not tell whose it is.
	hidden bool
}

func (x *explanation) warn(format string, args ...any) {
	x.out.Warnings = append(x.out.Warnings, fmt.Sprintf(format, args...))
}

// explainKernel lets a model of the kernel's scheduler stand in for it.
func (d *Daemon) explainKernel(ctx context.Context, s *fleet.Service, overhead sched.Overhead, x *explanation) error {
	table, err := d.watched.Table(ctx)
	if err != nil {
		return err
	}
	t, err := sched.New(string(s.Scheduler), sched.Options{
		Overhead: overhead, Rand: rand.NewPCG(1, 2), Now: func() time.Duration { return 0 },
	})
	if err != nil {
		x.warn("lbd does not know the scheduler %s", s.Scheduler)
		t, err = sched.New("rr", sched.Options{})
		x.hidden = true
	}
	if err != nil {
		return err
	}
	for _, e := range table {
		if e.ServiceKey != s.ServiceKey {
			continue
		}
		for i := len(e.Destinations) - 1; i >= 0; i-- { // each is inserted at the head
			dst := &e.Destinations[i]
			sv := sched.NewServer(uint32(i), dst.Address, sched.Config{
				Weight: dst.Weight, Upper: dst.UpperThreshold, Lower: dst.LowerThreshold,
			})
			t.Insert(sv)
			t.Begin(sv, sched.Active, dst.Conns.Active)
			t.Begin(sv, sched.Inactive, dst.Conns.Inactive)
		}
	}
	x.Standings = t.Standings()
	next, certain := t.Next()
	if next != nil {
		x.Next = next.Address()
	}
	x.Certain = certain
	// Whose turn it is the kernel does not tell.
	if s.Scheduler == "rr" || s.Scheduler == "wrr" || x.hidden {
		x.Certain, x.hidden = next == nil, next != nil
	}
	return nil
}

// compares says what the scheduler compares.
func (x *explanation) compares(s *fleet.Service, o sched.Overhead) {
	load := "256 x active + all connections"
	if o == sched.OverheadInactive {
		load = "256 x active + inactive connections"
	}
	name, _, _ := strings.Cut(string(s.Scheduler), ":")
	x.out.Compares = map[string]string{
		"lc":           load,
		"wlc":          "(" + load + ") / weight",
		"wlc-fair":     "(" + load + ") / weight",
		"sed":          "(active + 1) / weight",
		"nq":           "0 while nothing is active, else (active + 1) / weight",
		"fo":           "1 / weight",
		"ovf":          "1 / weight, while not more connections are active than the weight",
		"least-active": "requests without an answer / weight, then connections",
		"least-time":   "response time x (active + 1) / weight",
	}[name]
}

// servers lists the real servers: those of the engine in its order, then the
// others.
func (x *explanation) servers(s *fleet.Service) {
	decided := make(map[netip.AddrPort]*fleet.Server, len(s.Servers))
	for i := range s.Servers {
		decided[s.Servers[i].Address] = &s.Servers[i]
	}
	for i := range x.Standings {
		st := &x.Standings[i]
		out := api.Standing{
			Address: st.Address.String(), ProgrammedWeight: st.Config.Weight, Present: true,
			Active: st.Active, Inactive: st.Inactive, Overloaded: st.Overloaded, Score: score(s.Scheduler, st),
		}
		if rs := decided[st.Address]; rs != nil {
			tell(&out, rs)
			delete(decided, st.Address)
		}
		x.out.RealServers = append(x.out.RealServers, out)
	}
	for i := range s.Servers {
		if rs := &s.Servers[i]; decided[rs.Address] != nil {
			out := api.Standing{Address: rs.Address.String()}
			tell(&out, rs)
			x.out.RealServers = append(x.out.RealServers, out)
		}
	}
}

// tell adds what was decided about a real server.
func tell(out *api.Standing, rs *fleet.Server) {
	out.ConfiguredWeight, out.State, out.Reason = rs.Configured, string(rs.State), rs.Reason
	out.OnFailure, out.OnFailureReason = string(rs.OnFailure), rs.OnFailureReason
	out.Chain = chain(rs)
}

// chain returns the weight chain of a real server.
func chain(rs *fleet.Server) []api.WeightStep {
	steps := make([]api.WeightStep, len(rs.Chain))
	for i, s := range rs.Chain {
		steps[i] = api.WeightStep{Step: s.Name.String(), Weight: s.Weight, Reason: s.Reason}
	}
	return steps
}

// score prints what is compared of a real server.
func score(scheduler ipvs.Scheduler, st *sched.Standing) string {
	name, _, _ := strings.Cut(string(scheduler), ":")
	switch {
	case !st.Compared || st.Weight == 0:
		return ""
	case name == "least-active":
		return fmt.Sprintf("%d/%d, %d", st.Busy, st.Config.Weight, st.Active+st.Inactive)
	case name == "least-time":
		return fmt.Sprintf("%v x %d / %d", st.Latency.Round(time.Microsecond), st.Active+1, st.Config.Weight)
	case st.Weight == 1:
		return fmt.Sprint(st.Load)
	}
	return fmt.Sprintf("%d/%d = %.2f", st.Load, st.Weight, float64(st.Load)/float64(st.Weight))
}

// why says who is next, and why it is that one.
func (x *explanation) why(s *fleet.Service, engine config.Engine) {
	takers := 0
	for i := range x.Standings {
		st := &x.Standings[i]
		if st.Config.Weight > 0 && !st.Overloaded {
			takers++
		}
	}
	name, ties, _ := strings.Cut(string(s.Scheduler), ":")
	switch {
	case takers == 0:
		x.out.Why = "no real server takes connections: clients are refused"
	case x.hidden:
		x.out.Why = fmt.Sprintf("by turns, and the %s engine does not tell whose it is", engine)
	case !x.Certain && (name == "dh" || name == "lblc" || name == "lblcr"):
		x.out.Why = "the virtual address of the packet decides"
	case !x.Certain && (name == "sh" || name == "mh" || name == "ring"):
		x.out.Why = "the client's address decides"
	case !x.Certain && ties != "":
		x.out.Why = "the least score; among equals chance decides"
	case !x.Certain:
		x.out.Why = "chance decides"
	case !x.Next.IsValid():
		x.out.Why = "the scheduler finds no real server: clients are refused"
	default:
		x.out.Next = x.Next.String()
		x.out.Why = x.reason(ties)
	}
}

// reason says why the next real server is the next.
func (x *explanation) reason(ties string) string {
	var next *sched.Standing
	for i := range x.Standings {
		if x.Standings[i].Address == x.Next {
			next = &x.Standings[i]
		}
	}
	if next == nil || !next.Compared {
		return "it is its turn"
	}
	var equal []string
	for i := range x.Standings {
		st := &x.Standings[i]
		if st != next && st.Weight > 0 && st.Load*uint64(next.Weight) == next.Load*uint64(st.Weight) {
			equal = append(equal, st.Address.String())
		}
	}
	switch {
	case len(equal) == 0:
		return "it has the least score"
	case ties != "" || strings.HasPrefix(x.out.Scheduler, "wlc-fair"):
		return "it has the least score, as has " + strings.Join(equal, ", ") + ", and it is its turn"
	}
	return "it has the least score, as has " + strings.Join(equal, ", ") + ", and stands before"
}

// cautions warns of what makes the service behave other than the scheduler says.
func (x *explanation) cautions(s *fleet.Service, c *config.Config) {
	for i := range s.Servers {
		if rs := &s.Servers[i]; rs.Warning != "" {
			x.warn("%v: %s", rs.Address, rs.Warning)
		}
	}
	switch {
	case s.Backup:
		x.warn("the quorum is lost: the backup servers replace the others")
	case s.Quorum == fleet.QuorumLost:
		x.warn("the quorum is lost")
	}
	if s.FailOpen {
		x.warn("less of the weight is healthy than fail_open_below says: health is ignored")
	}
	if s.Flags&ipvs.FlagPersistent != 0 {
		quiesced := "but not at weight 0"
		if c.Sysctls["expire_quiescent_template"] == 0 {
			quiesced = "also at weight 0, as expire_quiescent_template is 0"
		}
		x.warn("the service is persistent: a client that was here goes to the real server that it had, for %v after its last connection, %s", s.Persistence.Timeout, quiesced)
	}
	// The flags of sh and mh have the same bits.
	hashes := s.Scheduler == "sh" || s.Scheduler == "dh" || s.Scheduler == "mh"
	if !hashes || s.Flags&ipvs.FlagSHFallback != 0 {
		return
	}
	for i := range x.Standings {
		if st := &x.Standings[i]; st.Config.Weight == 0 || st.Overloaded {
			x.warn("scheduler %s without a fallback flag: the clients of %v are refused while it takes none", s.Scheduler, st.Address)
		}
	}
}
