package e2e

import "fmt"

// Host is a netnstest.TB outside of tests.
type Host struct{ cleanups []func() }

// fatal is the panic by which Host.Fatalf ends its function.
type fatal struct{ err error }

// WithHost calls f and returns its error, or that of a Fatalf. Then it runs the
// clean-ups, however f ended.
func WithHost(f func(*Host) error) (err error) {
	h := new(Host)
	defer h.close()
	defer func() {
		if r := recover(); r != nil {
			f, ok := r.(fatal)
			if !ok {
				panic(r)
			}
			err = f.err
		}
	}()
	return f(h)
}

// Helper implements netnstest.TB.
func (*Host) Helper() {}

// Logf implements netnstest.TB and logs nothing.
func (*Host) Logf(string, ...any) {}

// Cleanup implements netnstest.TB.
func (h *Host) Cleanup(f func()) { h.cleanups = append(h.cleanups, f) }

// Fatalf implements netnstest.TB. It must be called from the goroutine of
// WithHost.
func (*Host) Fatalf(format string, args ...any) {
	panic(fatal{fmt.Errorf(format, args...)})
}

// close runs the clean-ups, the last first.
func (h *Host) close() {
	for len(h.cleanups) > 0 {
		last := len(h.cleanups) - 1
		f := h.cleanups[last]
		h.cleanups = h.cleanups[:last]
		f()
	}
}
