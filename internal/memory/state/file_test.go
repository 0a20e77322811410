package state

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/lbd-project/lbd/internal/memory/files"
	"github.com/lbd-project/lbd/ipvs"
)

var equal = cmp.Options{
	cmp.Comparer(func(a, b ipvs.DestinationKey) bool { return a == b }),
	cmpopts.EquateEmpty(),
}

// host is a host whose clocks and boot a test sets.
type host struct {
	path   string
	boot   string
	uptime time.Duration
	now    time.Time
}

func newHost(t *testing.T) *host {
	return &host{
		path: filepath.Join(t.TempDir(), "lbd", "state.json"), boot: "boot-1", uptime: time.Hour,
		now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC),
	}
}

func (h *host) open(t *testing.T) *File {
	t.Helper()
	f, err := open(h.path, clock{h.boot, func() time.Duration { return h.uptime }, func() time.Time { return h.now }})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// load loads as the next lbd would.
func (h *host) load(t *testing.T, maxAge time.Duration) (Overrides, []string) {
	t.Helper()
	f := h.open(t)
	defer f.Close()
	o, warnings, err := f.Load(maxAge)
	if err != nil {
		t.Fatal(err)
	}
	return o, warnings
}

func (h *host) save(t *testing.T, o Overrides) {
	t.Helper()
	f := h.open(t)
	defer f.Close()
	if err := f.Save(o); err != nil {
		t.Fatal(err)
	}
}

func (h *host) write(t *testing.T, content string) {
	t.Helper()
	h.open(t).Close()
	if err := os.WriteFile(h.path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func dest(vip, rs string) ipvs.DestinationKey {
	return ipvs.DestinationKey{
		Service: ipvs.AddrService(ipvs.TCP, netip.MustParseAddrPort(vip)), Address: netip.MustParseAddrPort(rs),
	}
}

var (
	web2 = dest("192.0.2.10:80", "10.0.0.2:80")
	web3 = dest("192.0.2.10:80", "10.0.0.3:80")
	six  = dest("[2001:db8::10]:80", "[fd00::2]:80")
	mark = ipvs.DestinationKey{Service: ipvs.MarkService(ipvs.IPv6, 7), Address: netip.MustParseAddrPort("[fd00::2]:0")}
)

func full() Overrides {
	at := time.Date(2026, 11, 30, 11, 0, 0, 0, time.UTC)
	return Overrides{
		web2: {Mode: ModeDrain, By: "alice (uid 1000)", At: at, Deadline: at.Add(time.Hour)},
		web3: {Mode: ModeDisable, Weight: &Weight{From: 0, To: 0}, Configured: 0, At: at},
		six:  {Weight: &Weight{From: 3, To: 65535, Over: time.Minute, Elapsed: 10 * time.Second}, Configured: 3, By: "root", At: at},
		mark: {Mode: ModeDrain, At: at},
	}
}

// What is saved comes back; 0 is a weight.
func TestSaveAndLoad(t *testing.T) {
	h := newHost(t)
	if o, warnings := h.load(t, 0); len(o)+len(warnings) != 0 {
		t.Errorf("without a file: want nothing, got %v, %q", o, warnings)
	}
	h.save(t, full())
	o, warnings := h.load(t, time.Second)
	if diff := cmp.Diff(full(), o, equal); diff != "" || warnings != nil {
		t.Errorf("overrides (-want +got), warnings %q:\n%s", warnings, diff)
	}
	for path, want := range map[string]os.FileMode{h.path: 0o600, filepath.Dir(h.path): 0o700} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: want mode %v, got %v, %v", path, want, info.Mode(), err)
		}
	}
	h.save(t, nil)
	if o, warnings := h.load(t, time.Second); len(o)+len(warnings) != 0 {
		t.Errorf("after nothing was saved: want nothing, got %v, %q", o, warnings)
	}
}

// A ramp goes on by the clock of the boot, whatever the wall clock does, and from
// where it was in another boot.
func TestLoadAges(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*host)
		want   time.Duration
	}{
		{"same moment", func(*host) {}, 10 * time.Second},
		{"later", func(h *host) { h.uptime += 5 * time.Second }, 15 * time.Second},
		{"past the end", func(h *host) { h.uptime += time.Hour }, time.Minute},
		{"wall clock ahead", func(h *host) { h.now = h.now.AddDate(10, 0, 0) }, 10 * time.Second},
		{"wall clock back", func(h *host) { h.now = h.now.AddDate(-10, 0, 0) }, 10 * time.Second},
		{"uptime back", func(h *host) { h.uptime = 0 }, 10 * time.Second},
		{"another boot", func(h *host) { h.boot, h.uptime, h.now = "boot-2", 0, h.now.Add(time.Hour) }, 10 * time.Second},
	} {
		h := newHost(t)
		h.save(t, full())
		tt.change(h)
		o, _ := h.load(t, 0)
		if w := o[six].Weight; w == nil || w.Elapsed != tt.want {
			t.Errorf("%s: want %v, got %+v", tt.name, tt.want, w)
		}
	}
}

// A state file from long ago counts for nothing at a cold start, if the
// configuration says so.
func TestMaxAge(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*host)
		maxAge time.Duration
		stale  bool
	}{
		{"never", func(h *host) { h.boot, h.now = "boot-2", h.now.AddDate(20, 0, 0) }, 0, false},
		{"same boot, fresh", func(h *host) { h.uptime += time.Minute }, time.Minute, false},
		{"same boot, old", func(h *host) { h.uptime += time.Minute + time.Second }, time.Minute, true},
		{"same boot, the wall clock jumped", func(h *host) { h.now = h.now.AddDate(1, 0, 0) }, time.Minute, false},
		{"other boot, fresh", func(h *host) { h.boot, h.uptime, h.now = "boot-2", 0, h.now.Add(time.Minute) }, time.Minute, false},
		{"other boot, old", func(h *host) { h.boot, h.uptime, h.now = "boot-2", 0, h.now.Add(time.Hour) }, time.Minute, true},
		{"other boot, the clock is not set yet", func(h *host) { h.boot, h.uptime, h.now = "boot-2", 0, time.Unix(0, 0) }, time.Minute, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost(t)
			h.save(t, full())
			saved, err := os.ReadFile(h.path)
			if err != nil {
				t.Fatal(err)
			}
			tt.change(h)
			o, warnings := h.load(t, tt.maxAge)
			if stale := len(o) == 0; stale != tt.stale {
				t.Errorf("forgotten: want %v, got %v", tt.stale, stale)
			}
			if !tt.stale {
				return
			}
			if len(warnings) != 1 || !strings.Contains(warnings[0], "old, state_max_age is 1m0s: set aside as "+h.path+".stale") {
				t.Errorf("want one warning that says why, got %q", warnings)
			}
			if b, err := os.ReadFile(h.path + staleSuffix); err != nil || string(b) != string(saved) {
				t.Errorf("want the file kept, got %q, %v", b, err)
			}
		})
	}
}

// A file that is none of lbd's is set aside, and the next Save makes a good one.
func TestLoadSetsAside(t *testing.T) {
	h := newHost(t)
	h.save(t, full())
	whole, err := os.ReadFile(h.path)
	if err != nil {
		t.Fatal(err)
	}
	contents := map[string]string{
		"empty": "", "no JSON": "\x00\xff", "no object": "[]", "null": "null", "another's": `{"version": 1}`,
		"two objects": `{"overrides": {}}{"overrides": {}}`, "deep nesting": strings.Repeat("[", 100_000),
	}
	for n := 0; n < len(whole)-2; n += 61 {
		contents[fmt.Sprint("cut at byte ", n)] = string(whole[:n])
	}
	for name, content := range contents {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.write(t, content)
			o, warnings := h.load(t, 0)
			if len(o) != 0 || len(warnings) != 1 || !strings.Contains(warnings[0], "set aside as "+h.path+".corrupt") {
				t.Errorf("want one warning, got %v, %q", o, warnings)
			}
			if b, err := os.ReadFile(h.path + corruptSuffix); err != nil || string(b) != content {
				t.Errorf("want the file kept, got %q, %v", b, err)
			}
			h.save(t, full())
			if o, _ := h.load(t, 0); len(o) != len(full()) {
				t.Errorf("saved after that: got %v", o)
			}
		})
	}
}

// What is broken is lost alone.
func TestLoadTolerates(t *testing.T) {
	h := newHost(t)
	drained := Override{Mode: ModeDrain, By: "root"}
	weighted := Override{Weight: &Weight{From: 3, To: 5}, Configured: 3}
	for _, tt := range []struct {
		name, entry string
		want        Override // of web3; web2 is drained
		warn        string
	}{
		{"whole", `{"mode": "drain", "by": "root"}`, drained, ""},
		{"null fields", `{"mode": "drain", "by": "root", "weight": null, "at": null, "deadline": null}`, drained, ""},
		{"unknown field", `{"mode": "drain", "by": "root", "shoe_size": 44}`, drained, `unknown field "shoe_size" is ignored`},
		{"unknown mode", `{"mode": "paused", "weight": {"from": 3, "to": 5}, "configured": 3}`, weighted, `mode "paused" is ignored`},
		{"unknown mode alone", `{"mode": "paused"}`, Override{}, `mode "paused" is ignored`},
		{"mode of another type", `{"mode": 7, "weight": {"from": 3, "to": 5}, "configured": 3}`, weighted, "mode is ignored"},
		{"weight of another type", `{"mode": "drain", "by": "root", "weight": 5, "configured": 3}`, drained, "weight is ignored"},
		{"weight too large", `{"mode": "drain", "by": "root", "weight": {"from": 3, "to": 65536}, "configured": 3}`, drained, "weight is ignored"},
		{"negative weight", `{"mode": "drain", "by": "root", "weight": {"from": -3, "to": 6}, "configured": 3}`, drained, "weight is ignored"},
		{"weight without to", `{"mode": "drain", "by": "root", "weight": {"from": 3}, "configured": 3}`, drained, "weight is ignored"},
		{"weight without from", `{"mode": "none", "weight": {"to": 0}, "configured": 3}`, Override{Weight: &Weight{}, Configured: 3}, ""},
		{"weight of unknown configuration", `{"mode": "drain", "by": "root", "weight": {"from": 3, "to": 5}}`, drained, "no configured weight"},
		{"times out of range", `{"weight": {"from": 3, "to": 5, "over_ms": 9223372036854775807, "elapsed_ms": -1}, "configured": 3}`,
			Override{Weight: &Weight{From: 3, To: 5, Over: milliseconds(1 << 62)}, Configured: 3}, ""},
		{"by of another type", `{"mode": "drain", "by": {}}`, Override{Mode: ModeDrain}, "by is ignored"},
		{"long name", `{"mode": "drain", "by": "` + strings.Repeat("x", 999) + `"}`, Override{Mode: ModeDrain, By: strings.Repeat("x", maxText)}, ""},
		{"bad time", `{"mode": "drain", "by": "root", "at": "yesterday"}`, drained, "at is ignored"},
		{"nothing", `{}`, Override{}, ""},
		{"another type", `"drain"`, Override{}, "is ignored"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			os.Remove(h.path + corruptSuffix)
			content := `{"version": 1, "saved": "2026-11-30T11:00:00Z", "boot_id": "boot-1", "saved_ms": 3600000, "overrides":
				{"TCP 192.0.2.10:80": {"10.0.0.2:80": {"mode": "drain"}, "10.0.0.3:80": ` + tt.entry + `}}}`
			h.write(t, content)
			want := Overrides{web2: {Mode: ModeDrain}}
			if tt.want != (Override{}) {
				want[web3] = tt.want
			}
			o, warnings := h.load(t, 0)
			if diff := cmp.Diff(want, o, equal); diff != "" {
				t.Errorf("overrides (-want +got):\n%s", diff)
			}
			got := strings.Join(warnings, "\n")
			if tt.warn == "" != (got == "") || !strings.Contains(got, tt.warn) {
				t.Errorf("warnings: want %q, got %q", tt.warn, got)
			}
			if b, err := os.ReadFile(h.path + corruptSuffix); tt.warn != "" && string(b) != content {
				t.Errorf("want the whole file kept, got %q, %v", b, err)
			}
		})
	}
}

// Keys and the head of the file are no more trusted than the rest.
func TestLoadToleratesKeys(t *testing.T) {
	h := newHost(t)
	h.write(t, `{"version": 9, "saved": 7, "boot_id": [], "saved_ms": "x", "more": 1, "overrides": {
		"tcp nowhere": {"10.0.0.2:80": {"mode": "drain"}},
		"UDP 192.0.2.10:53": [],
		"TCP 192.0.2.10:80": {"10.0.0.2": {"mode": "drain"}, "10.0.0.2:80": {"mode": "drain"}}}}`)
	o, warnings := h.load(t, 0)
	if diff := cmp.Diff(Overrides{web2: {Mode: ModeDrain}}, o, equal); diff != "" {
		t.Errorf("overrides (-want +got):\n%s", diff)
	}
	all := strings.Join(warnings, "\n")
	for _, want := range []string{"format 9", "saved", "boot_id", "saved_ms", `"more"`, `"tcp nowhere"`, "UDP 192.0.2.10:53", `"10.0.0.2" of`} {
		if !strings.Contains(all, want) {
			t.Errorf("no warning about %s: %s", want, all)
		}
	}
	// Whoever does not know how old it is must not take it for fresh.
	h.write(t, `{"overrides": {"TCP 192.0.2.10:80": {"10.0.0.2:80": {"mode": "drain"}}}}`)
	if o, _ := h.load(t, time.Hour); len(o) != 0 {
		t.Errorf("of unknown age: want nothing, got %v", o)
	}
	many := `{"overrides": {}`
	for i := range 99 {
		many += fmt.Sprintf(`, "u%d": 1`, i)
	}
	h.write(t, many+"}")
	if _, warnings := h.load(t, 0); len(warnings) != maxWarnings+1 {
		t.Errorf("want %d warnings, got %d", maxWarnings+1, len(warnings))
	}
}

// A file that cannot be read is not overwritten.
func TestUnreadableStays(t *testing.T) {
	h := newHost(t)
	h.save(t, full())
	f := h.open(t)
	defer f.Close()
	f.unread = errors.New("input/output error")
	if err := f.Save(nil); !errors.Is(err, f.unread) {
		t.Errorf("Save: want the error of the reading, got %v", err)
	}
	f.unread = nil
	// Nor one that is in the way of being set aside.
	h.block(t, f)
	if _, _, err := f.Load(0); err == nil || !strings.Contains(err.Error(), "cannot be set aside") {
		t.Errorf("Load: want an error, got %v", err)
	}
	if err := f.Save(nil); err == nil {
		t.Error("Save wrote over a file that could not be set aside")
	}
}

// block writes garbage, with a directory where it would be set aside.
func (h *host) block(t *testing.T, f *File) {
	t.Helper()
	if err := os.WriteFile(h.path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(h.path+corruptSuffix, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
}

// Two lbd with one file would overwrite each other's.
func TestLock(t *testing.T) {
	h := newHost(t)
	f := h.open(t)
	var locked *files.LockedError
	if _, err := Open(h.path); !errors.As(err, &locked) || locked.PID != os.Getpid() {
		t.Errorf("second Open: want a LockedError of process %d, got %v", os.Getpid(), err)
	}
	other, err := Open(filepath.Join(filepath.Dir(h.path), "other.json"))
	if err != nil {
		t.Fatalf("another file in the directory: %v", err)
	}
	other.Close()
	f.Close()
	again, err := Open(h.path)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

func FuzzDecode(f *testing.F) {
	c := clock{"boot-1", func() time.Duration { return time.Hour }, time.Now}
	b, err := encode(full(), c)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"overrides": {"TCP 192.0.2.10:80": {"10.0.0.2:80": {"mode": 1, "weight": {"to": 5}}}}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var d decoder
		if _, err := d.decode(b, c); err != nil {
			return
		}
		again, err := encode(d.overrides, c)
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		var d2 decoder
		if _, err := d2.decode(again, c); err != nil || len(d2.warnings) > 0 {
			t.Fatalf("what was written cannot be read: %v, %q\n%s", err, d2.warnings, again)
		}
		if diff := cmp.Diff(d.overrides, d2.overrides, equal, cmpopts.EquateApproxTime(time.Millisecond)); diff != "" {
			t.Errorf("decode, encode, decode (-want +got):\n%s", diff)
		}
	})
}
