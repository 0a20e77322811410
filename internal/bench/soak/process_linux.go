package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/lbd-project/lbd/internal/bench"
	"github.com/lbd-project/lbd/internal/e2e"
)

// memory is the resident memory of lbd in kB, and how many connections its real
// servers had: the most of the first fifth of the connections, and of the rest.
type memory struct {
	early, late         int
	earlyHeld, lateHeld int
}

func (m *memory) note(kb, held int, early bool) {
	if early {
		m.early, m.earlyHeld = max(m.early, kb), max(m.earlyHeld, held)
	} else {
		m.late, m.lateHeld = max(m.late, kb), max(m.lateHeld, held)
	}
}

func (m memory) String() string {
	return fmt.Sprintf("%d kB until the first fifth, with %d connections held, %d kB after it, with %d", m.early, m.earlyHeld, m.late, m.lateHeld)
}

// growth returns the most of the rest, less what is by chance, in units of the
// most of the first fifth. It is 0 where nothing was noted, as after a run that
// was too short.
func (m *memory) growth() float64 {
	return float64(max(m.late-memorySlack, 0)) / float64(max(m.early, 1))
}

// resident returns the resident memory of lbd in kB.
func resident(lbd *e2e.LBD) (int, error) {
	b, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(lbd.PID()), "status"))
	if err != nil {
		return 0, err
	}
	return bench.Memory(b, "VmRSS")
}

// files returns how many descriptors lbd has.
func files(lbd *e2e.LBD) (int, error) {
	list, err := os.ReadDir(filepath.Join("/proc", fmt.Sprint(lbd.PID()), "fd"))
	return len(list), err
}

// measureIdle starts lbd, and ends it after it has balanced nothing.
func (s *soak) measureIdle() (goroutines, descriptors int, err error) {
	if err := s.lbd.Start(); err != nil {
		return 0, 0, err
	}
	if descriptors, err = files(s.lbd); err != nil {
		return 0, 0, err
	}
	goroutines, err = s.dumpGoroutines()
	return goroutines, descriptors, err
}

// dumpGoroutines ends lbd with SIGQUIT, and counts the goroutines that it lists
// then. Its table stays, for the next.
func (s *soak) dumpGoroutines() (int, error) {
	before := len(s.lbd.Log())
	if err := s.lbd.Signal(syscall.SIGQUIT); err != nil {
		return 0, err
	}
	for deadline := time.Now().Add(apiTimeout); s.lbd.Running(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			return 0, fmt.Errorf("lbd did not end %v after SIGQUIT", apiTimeout)
		}
	}
	n := countGoroutines(s.lbd.Log()[before:])
	if n == 0 {
		return 0, fmt.Errorf("lbd listed no goroutines:\n%s", s.lbd.Log()[before:])
	}
	return n, nil
}

// countGoroutines counts those of a dump, the runtime's own aside.
func countGoroutines(dump string) int {
	n := 0
	for line := range strings.Lines(dump) {
		var id int
		if k, _ := fmt.Sscanf(line, "goroutine %d ", &id); k == 1 && id > 0 && strings.HasSuffix(line, "]:\n") {
			n++
		}
	}
	return n
}
