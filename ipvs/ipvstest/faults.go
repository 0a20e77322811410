package ipvstest

import (
	"math/rand/v2"
	"syscall"

	"github.com/lbd-project/lbd/ipvs"
)

// Faults make a Fake fail at random. The zero value makes none. Rates are
// probabilities, 0 to 1.
type Faults struct {
	// Rate is that of one operation of Apply, or SetTimeouts or Flush, failing
	// without effect.
	Rate float64
	// Errs are the errors to draw from; none means ENOMEM.
	Errs []error
	// LostRate is that of Apply giving up in the middle with ENOBUFS: the
	// operations up to a random one took effect, and no answer came.
	LostRate float64
	// ReadRate is that of a read failing with EINTR.
	ReadRate float64
	// Rand is drawn from; it must not be nil unless all rates are 0.
	Rand *rand.Rand
}

// Hooks are called in the middle of a Fake's methods, with nothing locked, so
// that they may change the table with Do or Clear. Nil hooks are not called.
type Hooks struct {
	// BeforeRead is called when Table begins.
	BeforeRead func()
	// AlterTable may change what Table returns: a reader of the kernel sees
	// entries missing or doubled when the table changes in the middle of a dump.
	AlterTable func([]ipvs.TableEntry) []ipvs.TableEntry
	// BeforeOp is called before every operation of Apply.
	BeforeOp func(ipvs.Op)
}

// SetFaults replaces the faults; the zero Faults end them.
func (f *Fake) SetFaults(faults Faults) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = faults
}

// SetHooks replaces the hooks; the zero Hooks remove them.
func (f *Fake) SetHooks(h Hooks) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hooks = h
}

func (f *Fake) getHooks() Hooks {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hooks
}

func (f *Faults) draw(rate float64) bool {
	return rate > 0 && f.Rand.Float64() < rate
}

// fail returns the error of an operation that must fail.
func (f *Faults) fail() error {
	if !f.draw(f.Rate) {
		return nil
	}
	if len(f.Errs) == 0 {
		return syscall.ENOMEM
	}
	return f.Errs[f.Rand.IntN(len(f.Errs))]
}

// failRead returns the error of a read that must fail.
func (f *Faults) failRead() error {
	if f.draw(f.ReadRate) {
		return syscall.EINTR
	}
	return nil
}

// lose returns how many of n operations take effect before the answer is lost;
// -1 if it is not lost.
func (f *Faults) lose(n int) int {
	if f.draw(f.LostRate) {
		return f.Rand.IntN(n + 1)
	}
	return -1
}
