package memory

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/ipvs"
)

var equal = cmp.Options{
	cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmp.Comparer(func(a, b ipvs.Netmask) bool { return a == b }),
	cmp.Comparer(func(a, b ipvs.ServiceKey) bool { return a == b }),
	cmpopts.EquateEmpty(),
}

// host is a host whose clock and boot a test sets.
type host struct {
	dir    string
	boot   string
	uptime time.Duration
	log    bytes.Buffer
}

func newHost(t *testing.T) *host {
	return &host{dir: filepath.Join(t.TempDir(), "lbd"), boot: "boot-1", uptime: time.Hour}
}

func (h *host) open(t *testing.T) *Store {
	t.Helper()
	h.log.Reset()
	s, err := open(h.dir, slog.New(slog.NewTextHandler(&h.log, nil)), h.boot,
		func() (time.Duration, error) { return h.uptime, nil })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// reload opens the store as the next lbd would, and loads.
func (h *host) reload(t *testing.T) Memory {
	t.Helper()
	s := h.open(t)
	m, err := s.Load()
	if err != nil {
		t.Fatalf("Load: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return m
}

func (h *host) save(t *testing.T, m Memory) {
	t.Helper()
	s := h.open(t)
	defer s.Close()
	if err := s.Save(m); err != nil {
		t.Fatal(err)
	}
}

func (h *host) file(name string) string { return filepath.Join(h.dir, name) }

func (h *host) write(t *testing.T, content []byte) {
	t.Helper()
	h.open(t).Close()
	if err := os.WriteFile(h.file(stateName), content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func tcp(address string) ipvs.ServiceKey {
	return ipvs.AddrService(ipvs.TCP, netip.MustParseAddrPort(address))
}

func dest(k ipvs.ServiceKey, address string) ipvs.DestinationKey {
	return ipvs.DestinationKey{Service: k, Address: netip.MustParseAddrPort(address)}
}

// full is a memory with something in every field.
func full() Memory {
	web, web6, mark := tcp("192.0.2.10:80"), tcp("[2001:db8::10]:80"), ipvs.MarkService(ipvs.IPv6, 7)
	return Memory{
		NetNS: "blue", Engine: "userspace", Marks: Marks{Mask: 0x0fffff00, State: 0xf0000000, Queue: 100, Queues: 2},
		Owned: map[ipvs.ServiceKey]struct{}{web: {}, web6: {}, mark: {}},
		Health: map[ipvs.DestinationKey]bool{
			dest(web, "10.0.0.1:80"):         true,
			dest(web, "10.0.0.2:80"):         false,
			dest(web6, "[2001:db8:1::1]:80"): true,
			dest(mark, "[2001:db8:1::1]:0"):  false,
		},
		DownFor: map[ipvs.DestinationKey]time.Duration{
			dest(web, "10.0.0.1:80"):         time.Minute,
			dest(web6, "[2001:db8:1::1]:80"): 0,
		},
		Advice: map[string]healthcheck.Advice{
			"a1": {Health: healthcheck.SaysDown, Weight: healthcheck.Weight{Kind: healthcheck.WeightPercent, Value: 50}},
			"b2": {Admin: healthcheck.SaysMaint, Weight: healthcheck.Weight{Kind: healthcheck.WeightAbsolute}},
			"c3": {Weight: healthcheck.Weight{Kind: healthcheck.WeightLess, Value: 65535}},
		},
		Policies: map[ipvs.ServiceKey]Policy{
			web: {Quorum: QuorumHeld, FailOpen: true}, web6: {Quorum: QuorumLost, Backup: true}, mark: {},
		},
		Returns: map[ipvs.DestinationKey]Return{
			dest(web, "10.0.0.1:80"):         {Out: true},
			dest(web, "10.0.0.2:80"):         {Back: true, For: 3 * time.Second},
			dest(web6, "[2001:db8:1::1]:80"): {Out: true, Back: true},
		},
		Order: map[ipvs.ServiceKey][]netip.AddrPort{
			web: {netip.MustParseAddrPort("10.0.0.2:80"), netip.MustParseAddrPort("10.0.0.1:80")},
		},
		Drains: []Drain{{
			Name:        "web",
			Service:     ipvs.Service{ServiceKey: web, Scheduler: "least-active:round-robin"},
			Destination: ipvs.Destination{Address: netip.MustParseAddrPort("10.0.0.3:8080"), Weight: 3},
			Remaining:   5 * time.Minute,
		}, {
			Name: "mark",
			Service: ipvs.Service{ServiceKey: mark, Scheduler: "sh",
				Flags:       ipvs.FlagPersistent | ipvs.FlagSHPort,
				Persistence: ipvs.Persistence{Timeout: time.Minute, Netmask: ipvs.NetmaskV6(64), Engine: "sip"}},
			Destination: ipvs.Destination{Address: netip.MustParseAddrPort("10.0.0.3:0"), Weight: 65535,
				Forward: ipvs.Tunnel, Tunnel: ipvs.TunnelOptions{Type: ipvs.TunnelGUE, Port: 6080, Checksum: ipvs.ChecksumRemote},
				UpperThreshold: 100, LowerThreshold: 50},
			Remaining: time.Hour,
		}, {
			Name: "mask",
			Service: ipvs.Service{ServiceKey: web, Scheduler: "rr", Flags: ipvs.FlagPersistent,
				Persistence: ipvs.Persistence{Timeout: time.Minute, Netmask: ipvs.NetmaskV4(netip.MustParseAddr("0.0.0.0"))}},
			Destination: ipvs.Destination{Address: netip.MustParseAddrPort("10.0.0.4:80"), Forward: ipvs.Route},
			Remaining:   time.Second,
		}},
		Sysctls:  map[string]int{"expire_nodest_conn": 0, "conn_reuse_mode": 1},
		Timeouts: ipvs.Timeouts{TCP: 15 * time.Minute, UDP: 5 * time.Minute},
		VIPs: map[VIP]struct{}{
			{"lo", netip.MustParsePrefix("192.0.2.10/32")}:        {},
			{"dummy0", netip.MustParsePrefix("2001:db8::10/128")}: {},
		},
		Paths: true,
	}
}

func TestSaveAndLoad(t *testing.T) {
	for name, want := range map[string]Memory{"nothing": {}, "everything": full()} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.save(t, want)
			if diff := cmp.Diff(want, h.reload(t), equal); diff != "" {
				t.Errorf("memory (-want +got):\n%s", diff)
			}
			if h.log.Len() > 0 {
				t.Errorf("warnings: %s", &h.log)
			}
		})
	}
}

func TestLoadWithoutFile(t *testing.T) {
	h := newHost(t)
	if diff := cmp.Diff(Memory{}, h.reload(t), equal); diff != "" {
		t.Errorf("memory (-want +got):\n%s", diff)
	}
}

// A23: ages follow the boot's own clock.
func TestLoadAges(t *testing.T) {
	h, web := newHost(t), tcp("192.0.2.10:80")
	m := full()
	h.save(t, m)
	h.uptime += 2 * time.Minute
	got := h.reload(t)
	want := map[ipvs.DestinationKey]time.Duration{
		dest(web, "10.0.0.1:80"):                             3 * time.Minute,
		dest(tcp("[2001:db8::10]:80"), "[2001:db8:1::1]:80"): 2 * time.Minute,
	}
	if diff := cmp.Diff(want, got.DownFor, equal); diff != "" {
		t.Errorf("down after 2 minutes for (-want +got):\n%s", diff)
	}
	returns := map[ipvs.DestinationKey]Return{
		dest(web, "10.0.0.1:80"):                             {Out: true},
		dest(web, "10.0.0.2:80"):                             {Back: true, For: 2*time.Minute + 3*time.Second},
		dest(tcp("[2001:db8::10]:80"), "[2001:db8:1::1]:80"): {Out: true, Back: true, For: 2 * time.Minute},
	}
	if diff := cmp.Diff(returns, got.Returns, equal); diff != "" {
		t.Errorf("returns after 2 minutes (-want +got):\n%s", diff)
	}
	var remaining []time.Duration
	for _, d := range got.Drains {
		remaining = append(remaining, d.Remaining)
	}
	if diff := cmp.Diff([]time.Duration{3 * time.Minute, 58 * time.Minute, 0}, remaining); diff != "" {
		t.Errorf("remaining after 2 minutes (-want +got):\n%s", diff)
	}
	// A clock that seems to go backwards ages nothing.
	h.uptime -= time.Hour
	if got := h.reload(t).DownFor[dest(web, "10.0.0.1:80")]; got != time.Minute {
		t.Errorf("age with an earlier clock: want 1m, got %v", got)
	}
}

// A22
func TestLoadIgnoresOtherBoot(t *testing.T) {
	h := newHost(t)
	h.save(t, full())
	h.boot = "boot-2"
	if diff := cmp.Diff(Memory{}, h.reload(t), equal); diff != "" {
		t.Errorf("memory of another boot (-want +got):\n%s", diff)
	}
}

// A newer lbd's fields survive an older one.
func TestSaveKeepsUnknownFields(t *testing.T) {
	h := newHost(t)
	h.write(t, edited(t, h, "routes", `["10.0.0.0/8"]`))
	s := h.open(t)
	if _, err := s.Load(); err != nil {
		t.Fatal(err)
	}
	want := full()
	want.NetNS = "green"
	if err := s.Save(want); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if diff := cmp.Diff(want, h.reload(t), equal); diff != "" {
		t.Errorf("memory (-want +got):\n%s", diff)
	}
	b, err := os.ReadFile(h.file(stateName))
	if err != nil {
		t.Fatal(err)
	}
	var fields struct{ Routes []string }
	if err := json.Unmarshal(b, &fields); err != nil || !cmp.Equal([]string{"10.0.0.0/8"}, fields.Routes) {
		t.Errorf("unknown field: want kept, got %v, %v", fields.Routes, err)
	}
}

func TestLoadMovesGarbageAside(t *testing.T) {
	for name, content := range map[string]string{
		"empty":        "",
		"no JSON":      "\x00\xff",
		"no object":    "[]",
		"null":         "null",
		"no boot ID":   `{"version": 1, "owned": []}`,
		"two objects":  `{"boot_id": "boot-1"}{"boot_id": "boot-1"}`,
		"deep nesting": strings.Repeat("[", 100_000),
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.write(t, []byte(content))
			if diff := cmp.Diff(Memory{}, h.reload(t), equal); diff != "" {
				t.Errorf("memory (-want +got):\n%s", diff)
			}
			if b, err := os.ReadFile(h.file(stateName + corruptSuffix)); err != nil || string(b) != content {
				t.Errorf("file moved aside: %q, %v", b, err)
			}
			if !strings.Contains(h.log.String(), "moved aside") {
				t.Errorf("no warning: %s", &h.log)
			}
			h.save(t, full())
			if diff := cmp.Diff(full(), h.reload(t), equal); diff != "" {
				t.Errorf("memory saved after that (-want +got):\n%s", diff)
			}
		})
	}
}

// A kill at any byte of a save leaves the old memory; a file cut at any byte by
// something else is never taken for a smaller memory.
func TestKilledSave(t *testing.T) {
	h := newHost(t)
	h.save(t, full())
	content, err := os.ReadFile(h.file(stateName))
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(content) {
		if _, _, err := readFields(content[:n]); err == nil {
			t.Fatalf("a file cut at byte %d was taken for a whole one", n)
		}
	}
	for n := 0; n < len(content); n += 101 {
		if err := os.WriteFile(h.file(".state.json123"), content[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(full(), h.reload(t), equal); diff != "" {
			t.Fatalf("memory after a save killed at byte %d (-want +got):\n%s", n, diff)
		}
		if _, err := os.Stat(h.file(".state.json123")); err == nil {
			t.Fatal("the leftover stays")
		}
	}
	for n := 0; n < len(content); n += 101 {
		h.write(t, content[:n])
		if diff := cmp.Diff(Memory{}, h.reload(t), equal); diff != "" {
			t.Fatalf("memory of a file cut at byte %d (-want +got):\n%s", n, diff)
		}
	}
}

// H1: modes, owners and links.
func TestFilesAreSafe(t *testing.T) {
	h := newHost(t)
	h.save(t, full())
	for name, want := range map[string]os.FileMode{".": 0o755, stateName: 0o600, lockName: 0o600} {
		info, err := os.Stat(h.file(name))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: want mode %v, got %v, %v", name, want, info.Mode().Perm(), err)
		}
	}
	t.Run("file that others may write to", func(t *testing.T) {
		if err := os.Chmod(h.file(stateName), 0o666); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(Memory{}, h.reload(t), equal); diff != "" {
			t.Errorf("memory (-want +got):\n%s", diff)
		}
		h.save(t, full())
	})
	t.Run("mode is not inherited", func(t *testing.T) {
		if err := os.Chmod(h.file(stateName), 0o644); err != nil {
			t.Fatal(err)
		}
		h.save(t, full())
		if info, err := os.Stat(h.file(stateName)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("mode after a save: want 0600, got %v, %v", info.Mode().Perm(), err)
		}
	})
	t.Run("link", func(t *testing.T) {
		for _, target := range []string{filepath.Join(t.TempDir(), "target"), h.file("target")} {
			content, err := os.ReadFile(h.file(stateName))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(target, content, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(h.file(stateName)); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(target, h.file(stateName)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(Memory{}, h.reload(t), equal); diff != "" {
				t.Errorf("memory read through a link (-want +got):\n%s", diff)
			}
			if err := os.Symlink(target, h.file(stateName)); err != nil {
				t.Fatal(err)
			}
			h.save(t, full())
			if b, err := os.ReadFile(target); err != nil || !bytes.Equal(content, b) {
				t.Errorf("save wrote through the link")
			}
		}
	})
	t.Run("directory", func(t *testing.T) {
		h := newHost(t)
		h.open(t).Close()
		if err := os.Mkdir(h.file(stateName), 0o700); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(Memory{}, h.reload(t), equal); diff != "" {
			t.Errorf("memory (-want +got):\n%s", diff)
		}
	})
	for _, mode := range []os.FileMode{0o775, 0o757, 0o777} {
		if err := os.Chmod(h.dir, mode); err != nil {
			t.Fatal(err)
		}
		if s, err := Open(h.dir, nil); err == nil {
			s.Close()
			t.Errorf("Open took a directory of mode %v", mode)
		}
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Chmod(h.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(h.dir, link); err != nil {
		t.Fatal(err)
	}
	if s, err := Open(link, nil); err == nil {
		s.Close()
		t.Error("Open took a link")
	}
}

func TestSaveReportsLostDirectory(t *testing.T) {
	h := newHost(t)
	s := h.open(t)
	if err := os.RemoveAll(h.dir); err != nil {
		t.Fatal(err)
	}
	if err := s.Save(full()); err == nil {
		t.Error("Save into a directory that was removed succeeded")
	}
}

func TestLock(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "lbd")
	s, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Open(dir, nil)
	var locked *LockedError
	if !errors.As(err, &locked) || locked.PID != os.Getpid() || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Errorf("second Open: want a LockedError of process %d, got %v", os.Getpid(), err)
	}
	if err := os.WriteFile(filepath.Join(dir, lockName), []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err = Open(dir, nil); !errors.As(err, &locked) || locked.PID != 0 {
		t.Errorf("second Open with nonsense in the lock file: want a LockedError of no process, got %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Open(dir, nil)
	if err != nil {
		t.Fatalf("Open after Close: %v", err)
	}
	defer again.Close()
	// The real clock and boot ID.
	if err := again.Save(full()); err != nil {
		t.Fatal(err)
	}
	m, err := again.Load()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(full().Owned, m.Owned, equal); diff != "" {
		t.Errorf("owned (-want +got):\n%s", diff)
	}
}

func BenchmarkSave(b *testing.B) {
	m := Memory{Owned: make(map[ipvs.ServiceKey]struct{}), Health: make(map[ipvs.DestinationKey]bool)}
	for i := range 1000 {
		k := tcp(fmt.Sprintf("192.0.%d.%d:80", i/250, i%250+1))
		m.Owned[k] = struct{}{}
		for j := range 20 {
			m.Health[dest(k, fmt.Sprintf("10.%d.%d.%d:80", i/250, i%250, j+1))] = false
		}
	}
	s, err := Open(filepath.Join(b.TempDir(), "lbd"), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Save(m); err != nil {
			b.Fatal(err)
		}
	}
}

// A save that fails for the same reason as the last one says the same.
func TestSaveErrorIsStable(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	s, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	want := "write " + filepath.Join(dir, stateName) + ": no such file or directory"
	for range 2 {
		if err := s.Save(Memory{}); err == nil || err.Error() != want || !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("save: want %q, got %v", want, err)
		}
	}
}

// A file that somebody else writes must be none of the store's.
func TestHolds(t *testing.T) {
	h := newHost(t)
	s := h.open(t)
	link := filepath.Join(t.TempDir(), "run")
	if err := os.Symlink(h.dir, link); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{
		filepath.Join(h.dir, "state.json"):              true,
		filepath.Join(link, "state.json"):               true,
		filepath.Join(link, "engine.state.corrupt"):     true,
		filepath.Join(h.dir, "lbd.lock"):                true,
		filepath.Join(h.dir, "admin.json"):              false,
		filepath.Join(t.TempDir(), "state.json"):        false,
		filepath.Join(h.dir, "not there", "state.json"): false,
		"": false,
	} {
		if got := s.Holds(path); got != want {
			t.Errorf("%q: want %v, got %v", path, want, got)
		}
	}
}
