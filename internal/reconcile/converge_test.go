package reconcile

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/ipvs"
	"github.com/lbd-project/lbd/ipvs/ipvstest"
)

// maxPasses is how many passes a failing table may take: with ten of a hundred
// operations failing, each pass of five rounds leaves next to nothing.
const maxPasses = 20

// passes runs passes until one has no error, as the timer of the daemon does.
func passes(t *testing.T, r *Reconciler, f *ipvstest.Fake, d Desired) (n int) {
	t.Helper()
	var err error
	for n = range maxPasses {
		if _, err = r.Pass(t.Context(), f, d); err == nil {
			return n + 1
		}
	}
	t.Fatalf("no success in %d passes, at last: %v", maxPasses, err)
	return n
}

// reloads are tables that a config might want one after the other.
func reloads() []Desired {
	first := fleet(20, 5)
	second := fleet(25, 4)
	second.Owned = first.Owned
	for i := range second.Services {
		s := &second.Services[i]
		switch i % 4 {
		case 0:
			s.Scheduler = "rr"
		case 1:
			s.Destinations[i%3].Weight = 0
		case 2:
			s.Destinations = s.Destinations[1:]
		}
	}
	last := fleet(3, 2)
	last.Owned = fleet(25, 0).Owned
	return []Desired{first, second, last}
}

// One of ten operations fails, answers are lost, reads are interrupted: the table
// becomes what it should be all the same, through every reload.
func TestConvergesWithFaults(t *testing.T) {
	everything := []error{syscall.ENOMEM, syscall.EINTR, syscall.EBUSY, syscall.EAGAIN, syscall.ENOBUFS}
	for name, faults := range map[string]ipvstest.Faults{
		"a tenth of the operations":    {Rate: 0.1, Errs: everything},
		"a tenth of the answers":       {LostRate: 0.1},
		"every other answer":           {LostRate: 0.5},
		"a tenth of the reads":         {ReadRate: 0.1},
		"a tenth of everything at all": {Rate: 0.1, LostRate: 0.1, ReadRate: 0.1, Errs: everything},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(40) {
				synctest.Test(t, func(t *testing.T) {
					f, r := ipvstest.New(), new(Reconciler)
					foreign := service("203.0.113.1:80")
					do(t, f, ipvs.Op{Kind: ipvs.OpAddService, Service: foreign})
					faults.Rand = rand.New(rand.NewPCG(seed, 0))
					for i, d := range reloads() {
						f.SetFaults(faults)
						passes(t, r, f, d)
						f.SetFaults(ipvstest.Faults{})
						checkConverged(t, f, d)
						if n := len(table(t, f)); n != len(d.Services)+1 {
							t.Errorf("seed %d, table %d: %d services; want %d and the foreign one", seed, i, n, len(d.Services))
						}
						f.ResetRequests()
						mustPass(t, r, f, d)
						if n := f.Requests().Writes; n > 0 {
							t.Errorf("seed %d, table %d: %d writes when all was right", seed, i, n)
						}
					}
				})
			}
		})
	}
}

// Somebody else writes to the table at the same time, at random, in the middle of
// batches. When he stops, one pass repairs everything; and no service is ever
// created that was not claimed before.
func TestConvergesAgainstOthers(t *testing.T) {
	for seed := range uint64(100) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			f := ipvstest.New()
			claimed := make(map[ipvs.ServiceKey]bool)
			r := &Reconciler{Claim: func(keys []ipvs.ServiceKey) error {
				for _, k := range keys {
					claimed[k] = true
				}
				return nil
			}}
			f.SetHooks(ipvstest.Hooks{BeforeOp: func(op ipvs.Op) {
				if op.Kind == ipvs.OpAddService && !claimed[op.Service.ServiceKey] {
					t.Errorf("seed %d: %v is created before it is claimed", seed, op.Service.ServiceKey)
				}
				if rnd.IntN(100) == 0 {
					meddle(f, rnd)
				}
			}})
			for _, d := range reloads() {
				d.Owned = nil
				for range 3 {
					// An error is right when somebody is in the way all the time.
					if _, err := r.Pass(t.Context(), f, d); err != nil && !errors.Is(err, ipvs.ErrServiceNotFound) &&
						!errors.Is(err, ipvs.ErrDestinationNotFound) && !errors.Is(err, ipvs.ErrServiceExists) &&
						!errors.Is(err, ipvs.ErrDestinationExists) {
						t.Errorf("seed %d: %v", seed, err)
					}
				}
				meddle(f, rnd)
			}
			f.SetHooks(ipvstest.Hooks{})
			d := reloads()[2]
			report := mustPass(t, r, f, d)
			if report.Rounds != 1 {
				t.Errorf("seed %d: %d rounds when nobody was in the way", seed, report.Rounds)
			}
			checkConverged(t, f, d)
		})
	}
}

// meddle makes one change to the table as somebody else might.
func meddle(f *ipvstest.Fake, rnd *rand.Rand) {
	s := service(fmt.Sprintf("192.0.0.%d:80", rnd.IntN(30)+1))
	d := destination(fmt.Sprintf("10.0.%d.%d:80", rnd.IntN(30), rnd.IntN(8)+1), uint32(rnd.IntN(10)))
	var op ipvs.Op
	switch rnd.IntN(8) {
	case 0:
		f.Clear()
		return
	case 1, 2:
		op = ipvs.Op{Kind: ipvs.OpDeleteService, Service: s}
	case 3:
		op = ipvs.Op{Kind: ipvs.OpAddService, Service: s}
	case 4:
		s.Scheduler = "sh"
		op = ipvs.Op{Kind: ipvs.OpUpdateService, Service: s}
	default:
		kinds := []ipvs.OpKind{ipvs.OpAddDestination, ipvs.OpUpdateDestination, ipvs.OpDeleteDestination}
		op = ipvs.Op{Kind: kinds[rnd.IntN(3)], Service: s, Destination: d}
	}
	// Whether it works does not matter: it is a blind change.
	_ = f.Do(op)
}

// F9: the effect of a batch whose answer was lost is not known; the next read
// tells, and what took effect is not drift.
func TestPassAfterLostAnswer(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			f, r, d := ipvstest.New(), new(Reconciler), fleet(5, 5)
			mustPass(t, r, f, d)
			d = reloads()[1]
			f.SetFaults(ipvstest.Faults{LostRate: 0.7, Rand: rand.New(rand.NewPCG(seed, 2))})
			var drift []Drift
			for range maxPasses {
				report, err := r.Pass(t.Context(), f, d)
				drift = append(drift, report.Drift...)
				if err == nil {
					break
				}
			}
			f.SetFaults(ipvstest.Faults{})
			checkConverged(t, f, d)
			if len(drift) > 0 {
				t.Errorf("seed %d: own writes were taken for drift: %v", seed, drift)
			}
		})
	}
}

// A clear while traffic flows and a pass runs is repaired by that pass.
func TestPassRepairsClearAtEveryOperation(t *testing.T) {
	d := fleet(3, 3)
	total := len(Diff(d, nil))
	for at := range total {
		synctest.Test(t, func(t *testing.T) {
			f := ipvstest.New()
			ops := 0
			f.SetHooks(ipvstest.Hooks{BeforeOp: func(ipvs.Op) {
				if ops == at {
					f.Clear()
				}
				ops++
			}})
			mustPass(t, new(Reconciler), f, d)
			// What the clear took of services that were complete, nothing but a
			// look at the table can tell.
			f.SetHooks(ipvstest.Hooks{})
			mustPass(t, new(Reconciler), f, d)
			checkConverged(t, f, d)
			var order []ipvs.Destination
			for _, dest := range table(t, f)[2].Destinations {
				order = append(order, dest.Destination)
			}
			if diff := cmp.Diff(d.Services[2].Destinations, order, equal); diff != "" {
				t.Errorf("clear at operation %d: list order of the last service (-want +got):\n%s", at, diff)
			}
		})
	}
}
