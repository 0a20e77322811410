package oracle

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/internal/netnstest"
	"github.com/lbd-project/lbd/internal/overhead"
	"github.com/lbd-project/lbd/ipvs"
	"github.com/lbd-project/lbd/sched"
)

// promise is how many picks with a server are compared: of lc and wlc, and of
// each other scheduler.
const (
	promiseLeast = 10_000
	promise      = 2_000
)

// kernelOverhead probes the kernel's overhead and checks the answer for kernels
// whose sources were read, so that a wrong probe is noticed: it would change
// which model is compared.
func kernelOverhead(t *testing.T) sched.Overhead {
	t.Helper()
	got, err := overhead.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		t.Fatal(err)
	}
	for prefix, want := range map[string]sched.Overhead{
		"6.1.0-50-": sched.OverheadInactive, // Debian's 6.1.176
		"6.1.0-57-": sched.OverheadTotal,    // Debian's 6.1.192
		"6.12.117+": sched.OverheadTotal,
	} {
		if strings.HasPrefix(string(release), prefix) && got != want {
			t.Fatalf("kernel %s: the probe says %v, its sources %v", release, got, want)
		}
	}
	return got
}

// loadCaches loads the schedulers whose autoload can hang the kernel while a
// namespace of another test is being removed (see package ipvs).
func loadCaches(t *testing.T) {
	t.Helper()
	if !netnstest.OwnsModules() {
		return
	}
	if out, err := exec.Command("modprobe", "-a", "ip_vs_lblc", "ip_vs_lblcr").CombinedOutput(); err != nil {
		t.Fatalf("modprobe: %v: %s", err, out)
	}
}

// lock keeps the test on one thread and one processor, so that the kernel handles
// frames in the order in which they are sent. The thread ends with the test.
func lock(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	var cpu unix.CPUSet
	cpu.Set(0)
	if err := unix.SchedSetaffinity(0, &cpu); err != nil {
		t.Fatalf("bind the thread to a processor: %v", err)
	}
}

// clock is the monotonic clock since the test began.
func clock() func() time.Duration {
	begin := time.Now()
	return func() time.Duration { return time.Since(begin) }
}

// TestKernelOracle compares every scheduler that decides deterministically on
// random sequences of opens, closes, expiries, weight edits, threshold edits,
// failures, deletes, adds and re-adds.
func TestKernelOracle(t *testing.T) {
	netnstest.Require(t, "netns", "ipvs")
	loadCaches(t)
	kind := kernelOverhead(t)
	type run struct {
		setup
		picks, expiries int
	}
	var runs []run
	add := func(name string, picks, expiries int, o sched.Options, s setup) {
		o.Overhead, o.Now = kind, clock()
		s.scheduler, s.options = name, o
		if s.family == 0 {
			s.family = ipvs.IPv4
		}
		runs = append(runs, run{s, picks, expiries})
	}
	for _, name := range []string{"lc", "wlc"} {
		add(name, promiseLeast, 6, sched.Options{}, setup{})
	}
	for _, name := range []string{"rr", "wrr", "sed", "nq", "fo", "ovf"} {
		add(name, promise, 3, sched.Options{}, setup{})
	}
	for _, name := range []string{"sh", "mh"} {
		for _, o := range []sched.Options{{}, {Port: true}, {Fallback: true}, {Port: true, Fallback: true}} {
			add(name, promise/2, 1, o, setup{})
		}
		add(name, promise/4, 1, sched.Options{Port: true, Fallback: true}, setup{family: ipvs.IPv6})
	}
	for _, name := range []string{"dh", "lblc", "lblcr"} {
		add(name, promise, 2, sched.Options{}, setup{mark: true, addresses: 20})
		add(name, promise/4, 1, sched.Options{}, setup{mark: true, addresses: 20, family: ipvs.IPv6})
	}
	compared := map[string]int{}
	refused := map[string]int{}
	began := time.Now()
	l := newTestLab(t)
	for i, r := range runs {
		name := r.scheduler
		if r.options.Port {
			name += "-port"
		}
		if r.options.Fallback {
			name += "-fallback"
		}
		if r.family == ipvs.IPv6 {
			name += "-ipv6"
		}
		t.Run(name, func(t *testing.T) {
			lock(t)
			p := newTestPool(t, l, r.setup)
			s := sequence{pool: p, rnd: rand.New(rand.NewPCG(uint64(i), 1))}
			begin := time.Now()
			err := s.run(r.picks, r.expiries)
			t.Logf("%s, overhead %v: %d picks equal, %d more refused by both, in %v",
				name, kind, p.compared, p.refused, time.Since(begin).Round(time.Millisecond))
			if err != nil {
				t.Fatal(err)
			}
			compared[r.scheduler] += p.compared
			refused[r.scheduler] += p.refused
		})
	}
	if filter := flag.Lookup("test.run"); strings.Contains(filter.Value.String(), "/") {
		t.Logf("only some sequences were run: no promise is checked")
		return
	}
	for _, info := range sched.Schedulers() {
		want := promise
		switch {
		case !info.Kernel || info.Name == "twos": // twos draws
			continue
		case info.Name == "lc" || info.Name == "wlc":
			want = promiseLeast
		}
		fmt.Printf("RESULT oracle_picks_%s_%v %d\n", info.Name, kind, compared[info.Name])
		if compared[info.Name] < want {
			t.Errorf("%s: %d picks compared, want at least %d", info.Name, compared[info.Name], want)
		}
	}
	t.Logf("all in %v", time.Since(began).Round(time.Second))
}

// newTestLab makes a lab on the test's thread.
func newTestLab(t *testing.T) *lab {
	t.Helper()
	lock(t)
	return newLab(t)
}

// newTestPool makes a pool whose service ends with the test.
func newTestPool(t *testing.T, l *lab, s setup) *pool {
	t.Helper()
	p, err := newPool(t.Context(), l, s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.table.DeleteService(context.WithoutCancel(t.Context()), p.key); err != nil {
			t.Error(err)
		}
	})
	return p
}
