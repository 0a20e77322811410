package memory

import (
	"encoding/json"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/ipvs"
)

// edited returns the file of full() with one field replaced.
func edited(t *testing.T, h *host, field, value string) []byte {
	t.Helper()
	h.save(t, full())
	b, err := os.ReadFile(h.file(stateName))
	if err != nil {
		t.Fatal(err)
	}
	fields := make(map[string]json.RawMessage)
	if err := json.Unmarshal(b, &fields); err != nil {
		t.Fatal(err)
	}
	if value == "" {
		delete(fields, field)
	} else {
		fields[field] = json.RawMessage(value)
	}
	if b, err = json.Marshal(fields); err != nil {
		t.Fatal(err)
	}
	return b
}

// What is broken is lost alone.
func TestLoadTolerates(t *testing.T) {
	web := tcp("192.0.2.10:80")
	drains := full().Drains
	drainText := func(t *testing.T, edit func(*drainJSON)) string {
		bad := encodeDrain(drains[1])
		edit(&bad)
		b, err := json.Marshal([]drainJSON{encodeDrain(drains[0]), bad})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	onlyFirst := func(m *Memory) { m.Drains = drains[:1] }
	none := func(*Memory) {}
	for _, tt := range []struct {
		name, field, value string
		// want changes full() to what must be left.
		want func(*Memory)
		warn bool
	}{
		{"no version", "version", "", none, true},
		{"version of another type", "version", `"1"`, none, true},
		{"newer version", "version", "2", none, true},
		{"no time", "saved_ms", "", none, true},
		{"time of another type", "saved_ms", "[]", none, true},
		{"time in the future", "saved_ms", "9223372036854775807", none, false},
		{"unknown field", "shoe_size", "44", none, false},
		{"netns of another type", "netns", "7", func(m *Memory) { m.NetNS = "" }, true},
		{"engine of another type", "engine", "{}", func(m *Memory) { m.Engine = "" }, true},
		{"marks of another type", "marks", "[]", func(m *Memory) { m.Marks = Marks{} }, true},
		{"mark out of range", "marks", `{"mask": 4294967296}`, func(m *Memory) { m.Marks = Marks{} }, true},
		{"queue out of range", "marks", `{"mask": 255, "queue": 65535, "queues": 2}`, func(m *Memory) { m.Marks = Marks{} }, true},
		{"negative queues", "marks", `{"mask": 255, "queues": -1}`, func(m *Memory) { m.Marks = Marks{} }, true},
		{"no owned services", "owned", "", func(m *Memory) { m.Owned = nil }, false},
		{"null", "owned", "null", func(m *Memory) { m.Owned = nil }, false},
		{"owned of another type", "owned", "{}", func(m *Memory) { m.Owned = nil }, true},
		{"one bad owned service", "owned", `["TCP 192.0.2.10:80", "tcp 1.2.3.4:5", 7]`,
			func(m *Memory) { m.Owned = map[ipvs.ServiceKey]struct{}{web: {}} }, true},
		{"policies of another type", "policies", "[]", func(m *Memory) { m.Policies = nil }, true},
		{"some bad policies", "policies", `{"TCP 192.0.2.10:80": {"quorum": "held", "fail_open": true}, "bad": {}, "UDP 192.0.2.10:80": 7}`,
			func(m *Memory) { m.Policies = map[ipvs.ServiceKey]Policy{web: {Quorum: QuorumHeld, FailOpen: true}} }, true},
		{"another quorum", "policies", `{"TCP 192.0.2.10:80": {"quorum": "HELD", "backup": true}}`,
			func(m *Memory) { m.Policies = map[ipvs.ServiceKey]Policy{web: {Backup: true}} }, true},
		{"returns of another type", "returns", "7", func(m *Memory) { m.Returns = nil }, true},
		{"some bad returns", "returns",
			`{"TCP 192.0.2.10:80": {"10.0.0.1:80": {"out": true, "for_ms": 9}, "10.0.0.2": {}, "10.0.0.3:80": {"back": true, "for_ms": -7}}, "bad": {}}`,
			func(m *Memory) {
				m.Returns = map[ipvs.DestinationKey]Return{dest(web, "10.0.0.1:80"): {Out: true}, dest(web, "10.0.0.3:80"): {Back: true}}
			}, true},
		{"health of another type", "health", "[]", func(m *Memory) { m.Health, m.DownFor = nil, nil }, true},
		{"some bad health", "health",
			`{"TCP 192.0.2.10:80": {"10.0.0.1:80": {"down": true, "for_ms": 60000}, "10.0.0.2:80": {"down": "yes"}, "nowhere": {}},
			  "bad": {"10.0.0.1:80": {}}, "UDP 192.0.2.10:80": 7}`,
			func(m *Memory) {
				m.Health = map[ipvs.DestinationKey]bool{dest(web, "10.0.0.1:80"): true}
				m.DownFor = map[ipvs.DestinationKey]time.Duration{dest(web, "10.0.0.1:80"): time.Minute}
			}, true},
		{"negative age", "health", `{"TCP 192.0.2.10:80": {"10.0.0.1:80": {"down": true, "for_ms": -5, "more": 1}}}`,
			func(m *Memory) {
				m.Health = map[ipvs.DestinationKey]bool{dest(web, "10.0.0.1:80"): true}
				m.DownFor = map[ipvs.DestinationKey]time.Duration{dest(web, "10.0.0.1:80"): 0}
			}, false},
		{"no advice", "advice", "", func(m *Memory) { m.Advice = nil }, false},
		{"advice of another type", "advice", `["drain"]`, func(m *Memory) { m.Advice = nil }, true},
		{"some bad advice", "advice",
			`{"a": {"admin": "drain", "more": 1}, "b": {"admin": "gone"}, "c": {"weight": "65536"}, "d": {"weight": "+5%"}, "e": {"weight": 5},
			  "f": {"health": 2}, "g": "drain", "h": {"weight": "+7"}}`,
			func(m *Memory) {
				m.Advice = map[string]healthcheck.Advice{
					"a": {Admin: healthcheck.SaysDrain}, "h": {Weight: healthcheck.Weight{Kind: healthcheck.WeightMore, Value: 7}},
				}
			}, true},
		{"some bad order", "order", `{"TCP 192.0.2.10:80": ["10.0.0.2:80", 7, "", "10.0.0.1:80"], "x": [], "FWM 7": {}}`,
			func(m *Memory) { m.Order[ipvs.MarkService(ipvs.IPv4, 7)] = nil }, true},
		{"drains of another type", "drains", `"none"`, func(m *Memory) { m.Drains = nil }, true},
		{"drain of no service", "drains", drainText(t, func(d *drainJSON) { d.Service.Key = "" }), onlyFirst, true},
		{"drain that no engine takes", "drains", drainText(t, func(d *drainJSON) { d.Destination.UpperThreshold = 1 }), onlyFirst, true},
		{"drain without scheduler", "drains", drainText(t, func(d *drainJSON) { d.Service.Scheduler = "" }), onlyFirst, true},
		{"drain with a bad prefix", "drains", drainText(t, func(d *drainJSON) { d.Service.Netmask = "x" }), onlyFirst, true},
		{"drain of the same server", "drains", drainText(t, func(d *drainJSON) { *d = encodeDrain(drains[0]); d.Service.Scheduler = "rr" }), onlyFirst, true},
		{"sysctls of another type", "sysctls", "7", func(m *Memory) { m.Sysctls = nil }, true},
		{"sysctl with a path", "sysctls", `{"../../kernel/panic": 1, "": 2, "a.b": 3, "expire_nodest_conn": 0, "x": "y"}`,
			func(m *Memory) { m.Sysctls = map[string]int{"expire_nodest_conn": 0} }, true},
		{"no timeouts", "timeouts", "", func(m *Memory) { m.Timeouts = ipvs.Timeouts{} }, false},
		{"timeouts of another type", "timeouts", `["tcp"]`, func(m *Memory) { m.Timeouts = ipvs.Timeouts{} }, true},
		{"timeout of another type", "timeouts", `{"tcp_ms": 900000, "udp_ms": "x"}`, func(m *Memory) { m.Timeouts = ipvs.Timeouts{} }, true},
		{"timeout that no engine takes", "timeouts", `{"tcp_ms": 1}`, func(m *Memory) { m.Timeouts = ipvs.Timeouts{} }, true},
		{"no paths", "paths", "", func(m *Memory) { m.Paths = false }, false},
		{"paths of another type", "paths", `"yes"`, func(m *Memory) { m.Paths = false }, true},
		{"some bad addresses", "vips", `[{"interface": "lo", "prefix": "192.0.2.10/32"}, {"interface": "lo"}, {"prefix": "192.0.2.10/32"}, {"interface": "lo", "prefix": "192.0.2.10/99"}, null]`,
			func(m *Memory) {
				m.VIPs = map[VIP]struct{}{{"lo", netip.MustParsePrefix("192.0.2.10/32")}: {}}
			}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost(t)
			h.write(t, edited(t, h, tt.field, tt.value))
			want := full()
			tt.want(&want)
			if diff := cmp.Diff(want, h.reload(t), equal); diff != "" {
				t.Errorf("memory (-want +got):\n%s", diff)
			}
			if got := h.log.Len() > 0; got != tt.warn {
				t.Errorf("warned: want %v, got %v: %s", tt.warn, got, &h.log)
			}
			if _, err := os.Stat(h.file(stateName + corruptSuffix)); err == nil {
				t.Error("the file was moved aside")
			}
		})
	}
}

func TestLoadBoundsWarnings(t *testing.T) {
	h := newHost(t)
	h.write(t, edited(t, h, "owned", "["+strings.Repeat("7,", 10_000)+"7]"))
	h.reload(t)
	if n := strings.Count(h.log.String(), "level=WARN"); n != maxWarnings {
		t.Errorf("%d warnings; want %d", n, maxWarnings)
	}
}

func FuzzLoad(f *testing.F) {
	b, err := encode(full(), header{BootID: "boot-1"}, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"boot_id": "boot-1"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		fields, _, err := readFields(b)
		if err != nil {
			return
		}
		var d decoder
		unknown := d.decode(fields, time.Hour)
		// What was understood is written and understood again.
		b, err = encode(d.memory, header{BootID: "boot-1", SavedMS: time.Hour.Milliseconds()}, unknown)
		if err != nil {
			t.Fatal(err)
		}
		fields, _, err = readFields(b)
		if err != nil {
			t.Fatal(err)
		}
		var again decoder
		again.decode(fields, time.Hour)
		if diff := cmp.Diff(d.memory, again.memory, equal); diff != "" || len(again.warnings) > 0 {
			t.Errorf("memory (-want +got):\n%s\nwarnings %v", diff, again.warnings)
		}
	})
}
