package config

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/ipvs"
)

// text prints a Config, one line for each service and each real server.
func text(c *Config) string {
	var b strings.Builder
	fmt.Fprintf(&b, "engine=%s netns=%q socket=%q,%q on_exit=%s vip_interface=%q exclusive=%v reconcile=%v mirror=%v\n",
		c.Engine, c.NetNS, c.SocketPath, c.SocketGroup, c.OnExit, c.VIPInterface, c.Exclusive, c.ReconcileInterval, c.MirrorInterval)
	if c.StateFile != "/var/lib/lbd/state.json" || c.StateMaxAge != 0 {
		fmt.Fprintf(&b, "state_file=%q max_age=%v\n", c.StateFile, c.StateMaxAge)
	}
	for _, h := range c.Hooks {
		fmt.Fprintf(&b, "hook %s events=%q timeout=%v max_age=%v", h.Name, h.Events, h.Timeout, h.MaxAge)
		if h.Exec != nil {
			fmt.Fprintf(&b, " exec=%q user=%q group=%q", h.Exec.Args, h.Exec.User, h.Exec.Group)
		} else {
			fmt.Fprintf(&b, " webhook=%s,%q headers=%v tls=%.40s", h.Webhook.Host, string(h.Webhook.URL), h.Webhook.Headers, h.Webhook.TLS.Key())
		}
		fmt.Fprintln(&b)
	}
	fmt.Fprintf(&b, "timeouts=%v sysctls=%v\n", c.Timeouts, c.Sysctls)
	for _, s := range c.VirtualServices {
		mask := fmt.Sprintf("%#x", s.Persistence.Netmask.V4())
		if s.Family == ipvs.IPv6 {
			mask = fmt.Sprint(s.Persistence.Netmask.V6())
		}
		fmt.Fprintf(&b, "%s line=%d %v %s flags=%#x persistence=%v,%s,%q\n",
			s.Name, s.Line, s.ServiceKey, s.Scheduler, s.Flags, s.Persistence.Timeout, mask, s.Persistence.Engine)
		if q := s.Quorum; s.SlowStart != 0 || s.FailOpenBelow != 0 || q.Up > 1 || q.Hysteresis > 0 || len(q.OnUp)+len(q.OnDown)+len(s.Backup) > 0 {
			fmt.Fprintf(&b, "  slow_start=%v fail_open_below=%d quorum=%d±%d on_up=%q on_down=%q backup=%d\n",
				s.SlowStart, s.FailOpenBelow, q.Up, q.Hysteresis, q.OnUp, q.OnDown, len(s.Backup))
		}
		if s.Passive.On() {
			fmt.Fprintf(&b, "  passive=%+v\n", s.Passive)
		}
		for rs := range s.Servers() {
			fmt.Fprintf(&b, "  %v weight=%d %v,%v,%d,%v thresholds=%d,%d %s drain=%v\n", rs.Address, rs.Weight,
				rs.Forward, rs.Tunnel.Type, rs.Tunnel.Port, rs.Tunnel.Checksum, rs.UpperThreshold, rs.LowerThreshold, rs.OnFailure, rs.DrainTimeout)
			for _, p := range rs.Probes {
				fmt.Fprintf(&b, "    %s\n", p.Key())
			}
		}
	}
	fmt.Fprintf(&b, "userspace=%+v\n", c.Userspace)
	for _, e := range slices.Sorted(maps.Keys(c.Refused)) {
		for _, err := range c.Refused[e] {
			fmt.Fprintf(&b, "not with engine %s: %v\n", e, err)
		}
	}
	for _, w := range c.Warnings {
		fmt.Fprintf(&b, "warning %s\n", w)
	}
	return b.String()
}

func goodFiles(t testing.TB) []string {
	t.Helper()
	paths, err := filepath.Glob("testdata/good/*.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no good files: %v", err)
	}
	return append(paths, "reference.yaml", "minimal.yaml")
}

func TestParseGood(t *testing.T) {
	for _, path := range goodFiles(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			c, err := Parse("lbd.yaml", data)
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", "good", strings.TrimSuffix(filepath.Base(path), ".yaml")+".golden")
			got := text(c)
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("Config of %s (-want +got):\n%s", path, diff)
			}
		})
	}
}

// Both readers must give the same Config.
func TestReadersAgree(t *testing.T) {
	plain := 0
	for _, path := range goodFiles(t) {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		want, errs := readYAML(path, data)
		if errs != nil {
			t.Fatal(errs)
		}
		got, ok := readPlain(string(data))
		if !ok {
			continue
		}
		plain++
		if diff := cmp.Diff(dump(want), dump(got)); diff != "" {
			t.Errorf("tree of %s (-library +plain):\n%s", path, diff)
		}
	}
	if plain < 5 {
		t.Errorf("the plain reader took %d good files, want at least 5", plain)
	}
}

// A file that says weight 0 means it, whatever the default.
func TestWeightZero(t *testing.T) {
	c, err := Parse("lbd.yaml", []byte(`
defaults: {weight: 7}
virtual_services:
  - address: 192.0.2.10:80
    real_servers: [{address: 10.0.0.2, weight: 0}, {address: 10.0.0.3}]
  - address: 192.0.2.11:80
    weight: 0
    real_servers: [{address: 10.0.0.2}, {address: 10.0.0.3, weight: 2}]
`))
	if err != nil {
		t.Fatal(err)
	}
	var got []uint32
	for _, s := range c.VirtualServices {
		for _, rs := range s.RealServers {
			got = append(got, rs.Weight)
		}
	}
	if want := []uint32{0, 7, 0, 2}; !slices.Equal(want, got) {
		t.Errorf("weights: want %v, got %v", want, got)
	}
}

// Every service and real server of a file is in the Config, in order.
func TestParseAll(t *testing.T) {
	c, err := Parse("lbd.yaml", large(300, 7))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.VirtualServices) != 300 {
		t.Fatalf("want 300 virtual services, got %d", len(c.VirtualServices))
	}
	keys := map[ipvs.ServiceKey]bool{}
	probes := map[string]bool{}
	for _, s := range c.VirtualServices {
		keys[s.ServiceKey] = true
		if len(s.RealServers) != 7 {
			t.Errorf("%s: want 7 real servers, got %d", s.Name, len(s.RealServers))
		}
		for i, rs := range s.RealServers {
			if rs.Weight != uint32(i) {
				t.Errorf("%s: real server %d has weight %d", s.Name, i, rs.Weight)
			}
			for _, p := range rs.Probes {
				probes[p.Key()] = true
			}
		}
	}
	if len(keys) != 300 || len(probes) != 300*7 {
		t.Errorf("want 300 keys and 2100 probes, got %d and %d", len(keys), len(probes))
	}
}

func TestProbes(t *testing.T) {
	c, err := Parse("lbd.yaml", []byte(`
virtual_services:
  - address: 192.0.2.10:80
    check: {interval: 3s, rise: 4}
    real_servers:
      - address: 10.0.0.2:8080
      - {address: 10.0.0.3, check: [{}, {}, {port: 81}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, rs := range c.VirtualServices[0].RealServers {
		for _, p := range rs.Probes {
			got = append(got, p.Key())
		}
	}
	want := []string{
		"tcp 10.0.0.2:8080 interval=3s timeout=1s rise=4 fall=3",
		"tcp 10.0.0.3:80 interval=2s timeout=1s rise=2 fall=3",
		"tcp 10.0.0.3:81 interval=2s timeout=1s rise=2 fall=3",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("probes (-want +got):\n%s", diff)
	}
	if m := c.VirtualServices[0].RealServers[0].Probes[0].Method; m != (healthcheck.TCP{}) {
		t.Errorf("method: want TCP, got %#v", m)
	}
}

// The default and what the services need become sysctls, what the file says
// stays.
func TestSysctls(t *testing.T) {
	const sticky = "  - {address: 192.0.2.10:80, persistence: {}, real_servers: [{address: 10.0.0.2}]}\n"
	const udp = "  - {address: 192.0.2.10:53, protocol: udp, real_servers: [{address: 10.0.0.2}]}\n"
	const plain = "  - {address: 192.0.2.10:81, real_servers: [{address: 10.0.0.2}]}\n"
	for _, tt := range []struct {
		name, config string
		want         map[string]int
	}{
		{"default", plain, map[string]int{"expire_nodest_conn": 1}},
		{"other given", plain + "sysctls: {conntrack: 1}\n", map[string]int{"expire_nodest_conn": 1, "conntrack": 1}},
		{"default refused", plain + "sysctls: {expire_nodest_conn: 0}\n", map[string]int{"expire_nodest_conn": 0}},
		{"persistent", sticky, map[string]int{"expire_quiescent_template": 1, "expire_nodest_conn": 1}},
		{"removed", udp, map[string]int{"expire_nodest_conn": 1}},
		{"both", sticky + udp + "sysctls: {conntrack: 1}\n", map[string]int{"expire_quiescent_template": 1, "expire_nodest_conn": 1, "conntrack": 1}},
		{"needs refused", sticky + udp + "sysctls: {expire_quiescent_template: 0, expire_nodest_conn: 0}\n", map[string]int{"expire_quiescent_template": 0, "expire_nodest_conn": 0}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := Parse("lbd.yaml", []byte("virtual_services:\n"+tt.config))
			if err != nil {
				t.Fatal(err)
			}
			if !maps.Equal(tt.want, c.Sysctls) {
				t.Errorf("want %v, got %v", tt.want, c.Sysctls)
			}
		})
	}
}

// sameProbes compares probes by their keys, which have every option.
var sameProbes = cmp.Comparer(func(a, b healthcheck.Probe) bool { return a.Key() == b.Key() })

// The same bytes give the same Config or the same errors.
func TestParseDeterministic(t *testing.T) {
	bad, err := filepath.Glob("testdata/bad/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(bad, goodFiles(t)...) {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		c1, err1 := Parse("x", data)
		for range 3 {
			c2, err2 := Parse("x", data)
			if diff := cmp.Diff(c1, c2, cmpopts.EquateComparable(ipvs.Netmask{}), cmpopts.EquateComparable(ipvs.Service{}, ipvs.Destination{}), sameProbes); diff != "" {
				t.Errorf("%s: Configs differ:\n%s", path, diff)
			}
			if diff := cmp.Diff(err1, err2); diff != "" {
				t.Errorf("%s: errors differ:\n%s", path, diff)
			}
		}
	}
}

// Each level has its own drain timeout, for real servers that the file does not
// name.
func TestDrainTimeouts(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		// of the configuration, the service and its real server
		want [3]time.Duration
	}{
		{"nothing said", "virtual_services:\n- {address: '192.0.2.1:80', real_servers: [{address: 10.0.0.2}]}\n",
			[3]time.Duration{5 * time.Minute, 5 * time.Minute, 5 * time.Minute}},
		{"defaults", "defaults: {drain_timeout: 3s}\nvirtual_services:\n- {address: '192.0.2.1:80', real_servers: [{address: 10.0.0.2}]}\n",
			[3]time.Duration{3 * time.Second, 3 * time.Second, 3 * time.Second}},
		{"each", "defaults: {drain_timeout: 3s}\nvirtual_services:\n- {address: '192.0.2.1:80', drain_timeout: 2s, real_servers: [{address: 10.0.0.2, drain_timeout: 1s}]}\n",
			[3]time.Duration{3 * time.Second, 2 * time.Second, time.Second}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := Parse("x.yaml", []byte(tt.text))
			if err != nil {
				t.Fatal(err)
			}
			vs := &c.VirtualServices[0]
			got := [3]time.Duration{c.DrainTimeout, vs.DrainTimeout, vs.RealServers[0].DrainTimeout}
			if got != tt.want {
				t.Errorf("drain timeouts: want %v, got %v", tt.want, got)
			}
		})
	}
}
