package memory

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/ipvs"
)

// version is that of the format. A reader takes what it understands of any
// version, so it changes only when a field changes its meaning.
const version = 1

// header ties a file to a boot and to a moment in it.
type header struct {
	Version int    `json:"version"`
	BootID  string `json:"boot_id"`
	// SavedMS is the time from boot to the save, in milliseconds, suspend
	// included (CLOCK_BOOTTIME).
	SavedMS int64 `json:"saved_ms"`
}

// document is the file but for the health, which has most of it and is encoded by
// appendHealth. Keys of services and real servers are their printed forms, durations
// are milliseconds.
type document struct {
	header
	NetNS    string                           `json:"netns"`
	Engine   string                           `json:"engine"`
	Marks    marksJSON                        `json:"marks"`
	Owned    []string                         `json:"owned"`
	Advice   map[string]adviceJSON            `json:"advice"`
	Policies map[string]policyJSON            `json:"policies"`
	Returns  map[string]map[string]returnJSON `json:"returns"`
	Order    map[string][]netip.AddrPort      `json:"order"`
	Drains   []drainJSON                      `json:"drains"`
	Sysctls  map[string]int                   `json:"sysctls"`
	Timeouts timeoutsJSON                     `json:"timeouts"`
	VIPs     []vipJSON                        `json:"vips"`
	Paths    bool                             `json:"paths"`
}

type marksJSON struct {
	Mask   uint32 `json:"mask"`
	State  uint32 `json:"state"`
	Queue  uint16 `json:"queue"`
	Queues int    `json:"queues"`
}

// healthJSON is what appendHealth writes of a real server.
type healthJSON struct {
	Down  bool  `json:"down"`
	ForMS int64 `json:"for_ms"`
}

// adviceJSON has the words of an agent: "down", "drain" or "maint", and "50%".
type adviceJSON struct {
	Health healthcheck.Verdict `json:"health"`
	Admin  healthcheck.Verdict `json:"admin"`
	Weight healthcheck.Weight  `json:"weight"`
}

type policyJSON struct {
	Quorum   string `json:"quorum"`
	Backup   bool   `json:"backup"`
	FailOpen bool   `json:"fail_open"`
}

type returnJSON struct {
	Out   bool  `json:"out"`
	Back  bool  `json:"back"`
	ForMS int64 `json:"for_ms"`
}

type timeoutsJSON struct {
	TCPMS    int64 `json:"tcp_ms"`
	TCPFinMS int64 `json:"tcp_fin_ms"`
	UDPMS    int64 `json:"udp_ms"`
}

type vipJSON struct {
	Interface string       `json:"interface"`
	Prefix    netip.Prefix `json:"prefix"`
}

type drainJSON struct {
	Name        string          `json:"name"`
	Service     serviceJSON     `json:"service"`
	Destination destinationJSON `json:"real_server"`
	RemainingMS int64           `json:"remaining_ms"`
}

type serviceJSON struct {
	Key       string            `json:"key"`
	Scheduler ipvs.Scheduler    `json:"scheduler"`
	Flags     ipvs.ServiceFlags `json:"flags"`
	TimeoutMS int64             `json:"persistence_ms"`
	// Netmask is "255.255.255.0" or, for IPv6, "64"; empty for the default.
	Netmask string `json:"netmask"`
	Engine  string `json:"engine"`
}

type destinationJSON struct {
	Address        netip.AddrPort      `json:"address"`
	Weight         uint32              `json:"weight"`
	Forward        ipvs.ForwardMethod  `json:"forwarding"`
	TunnelType     ipvs.TunnelType     `json:"tunnel_type"`
	TunnelPort     uint16              `json:"tunnel_port"`
	TunnelChecksum ipvs.TunnelChecksum `json:"tunnel_checksum"`
	UpperThreshold uint32              `json:"upper_threshold"`
	LowerThreshold uint32              `json:"lower_threshold"`
}

// encode returns the file for m. Fields of other versions in unknown are kept.
func encode(m Memory, h header, unknown map[string]json.RawMessage) ([]byte, error) {
	h.Version = version
	d := document{
		header: h, NetNS: m.NetNS, Engine: m.Engine, Marks: marksJSON(m.Marks), Sysctls: m.Sysctls, Paths: m.Paths,
		Owned:    []string{},
		Advice:   make(map[string]adviceJSON, len(m.Advice)),
		Policies: make(map[string]policyJSON, len(m.Policies)),
		Order:    make(map[string][]netip.AddrPort, len(m.Order)),
		Drains:   make([]drainJSON, 0, len(m.Drains)),
		VIPs:     make([]vipJSON, 0, len(m.VIPs)),
		Timeouts: timeoutsJSON{
			TCPMS:    m.Timeouts.TCP.Milliseconds(),
			TCPFinMS: m.Timeouts.TCPFin.Milliseconds(),
			UDPMS:    m.Timeouts.UDP.Milliseconds(),
		},
	}
	for k := range m.Owned {
		d.Owned = append(d.Owned, k.String())
	}
	slices.Sort(d.Owned)
	d.Returns = byService(m.Returns, func(r Return) returnJSON { return returnJSON{r.Out, r.Back, r.For.Milliseconds()} })
	for name, a := range m.Advice {
		d.Advice[name] = adviceJSON{a.Health, a.Admin, a.Weight}
	}
	for k, p := range m.Policies {
		d.Policies[k.String()] = policyJSON(p)
	}
	for k, list := range m.Order {
		d.Order[k.String()] = list
	}
	for _, dr := range m.Drains {
		d.Drains = append(d.Drains, encodeDrain(dr))
	}
	for v := range m.VIPs {
		d.VIPs = append(d.VIPs, vipJSON(v))
	}
	slices.SortFunc(d.VIPs, func(a, b vipJSON) int {
		return cmp.Or(cmp.Compare(a.Interface, b.Interface), a.Prefix.Compare(b.Prefix))
	})
	known, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	known = append(known[:len(known)-1], `,"health":`...)
	known = append(appendHealth(known, m.Health, m.DownFor), '}')
	if len(unknown) == 0 {
		return known, nil
	}
	all := maps.Clone(unknown)
	if err := json.Unmarshal(known, &all); err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return json.Marshal(all)
}

// byService prints the keys of real servers, and groups them by service.
func byService[V, J any](m map[ipvs.DestinationKey]V, encode func(V) J) map[string]map[string]J {
	out := make(map[string]map[string]J)
	for k, v := range m {
		s := k.Service.String()
		if out[s] == nil {
			out[s] = make(map[string]J)
		}
		out[s][k.Address.String()] = encode(v)
	}
	return out
}

func encodeDrain(d Drain) drainJSON {
	s := d.Service.Canonical()
	return drainJSON{
		Name:        d.Name,
		RemainingMS: d.Remaining.Milliseconds(),
		Service: serviceJSON{
			Key: s.ServiceKey.String(), Scheduler: s.Scheduler, Flags: s.Flags,
			TimeoutMS: s.Persistence.Timeout.Milliseconds(),
			Netmask:   encodeNetmask(s), Engine: s.Persistence.Engine,
		},
		Destination: destinationJSON{
			Address: d.Destination.Address, Weight: d.Destination.Weight, Forward: d.Destination.Forward,
			TunnelType: d.Destination.Tunnel.Type, TunnelPort: d.Destination.Tunnel.Port,
			TunnelChecksum: d.Destination.Tunnel.Checksum,
			UpperThreshold: d.Destination.UpperThreshold, LowerThreshold: d.Destination.LowerThreshold,
		},
	}
}

// encodeNetmask prints the mask of a canonical service.
func encodeNetmask(s ipvs.Service) string {
	if s.Persistence.Netmask == (ipvs.Netmask{}) {
		return ""
	}
	return s.Persistence.Netmask.Text(s.Family)
}

// duration turns the milliseconds of a file into a Duration of 0 to 100 years,
// which any arithmetic on it survives.
func duration(ms int64) time.Duration {
	const most = 100 * 365 * 24 * time.Hour
	return time.Duration(min(max(ms, 0), most.Milliseconds())) * time.Millisecond
}
