package memory

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/ipvs"
)

// maxWarnings bounds the warnings about one file.
const maxWarnings = 20

// decoder reads a file. What it cannot understand it drops, with a warning.
type decoder struct {
	memory   Memory
	warnings []string
	// elapsed is the time since the file was written.
	elapsed time.Duration
}

func (d *decoder) warn(format string, args ...any) {
	switch len(d.warnings) {
	case maxWarnings:
	case maxWarnings - 1:
		d.warnings = append(d.warnings, "more of this kind")
	default:
		d.warnings = append(d.warnings, fmt.Sprintf(format, args...))
	}
}

// readFields splits a file into its fields. An error means that it is not one of
// ours.
func readFields(b []byte) (fields map[string]json.RawMessage, bootID string, err error) {
	if err := json.Unmarshal(b, &fields); err != nil {
		return nil, "", err
	}
	if err := json.Unmarshal(fields["boot_id"], &bootID); err != nil || bootID == "" {
		return nil, "", errors.New("no boot ID")
	}
	delete(fields, "boot_id")
	return fields, bootID, nil
}

// decode reads the fields of a file of this boot, uptime after boot, and returns
// those that it does not know.
func (d *decoder) decode(fields map[string]json.RawMessage, uptime time.Duration) map[string]json.RawMessage {
	if v, ok := decodeInto[int](d, "version", fields["version"]); ok && v > version {
		d.warn("written in format %d by a newer lbd, read as format %d", v, version)
	}
	if ms, ok := decodeInto[int64](d, "saved_ms", fields["saved_ms"]); ok {
		d.elapsed = max(uptime-duration(ms), 0)
	}
	delete(fields, "version")
	delete(fields, "saved_ms")
	for _, field := range []struct {
		name string
		read func(json.RawMessage)
	}{
		{"netns", d.netns},
		{"engine", d.engine},
		{"marks", d.marks},
		{"owned", d.owned},
		{"health", d.health},
		{"advice", d.advice},
		{"policies", d.policies},
		{"returns", d.returns},
		{"order", d.order},
		{"drains", d.drains},
		{"sysctls", d.sysctls},
		{"timeouts", d.timeouts},
		{"vips", d.vips},
		{"paths", d.paths},
	} {
		if raw, ok := fields[field.name]; ok {
			field.read(raw)
			delete(fields, field.name)
		}
	}
	return fields
}

// decodeInto unmarshals and says whether that went well.
func decodeInto[T any](d *decoder, what string, raw json.RawMessage) (v T, ok bool) {
	if err := json.Unmarshal(raw, &v); err != nil {
		d.warn("%s: %v", what, err)
		return v, false
	}
	return v, true
}

// list decodes the elements of an array one by one.
func list[T any](d *decoder, what string, raw json.RawMessage) []T {
	elements, _ := decodeInto[[]json.RawMessage](d, what, raw)
	var all []T
	for i, e := range elements {
		if v, ok := decodeInto[T](d, fmt.Sprintf("%s[%d]", what, i), e); ok {
			all = append(all, v)
		}
	}
	return all
}

// object decodes the values of an object one by one.
func object[T any](d *decoder, what string, raw json.RawMessage) map[string]T {
	fields, _ := decodeInto[map[string]json.RawMessage](d, what, raw)
	all := make(map[string]T, len(fields))
	for name, f := range fields {
		if v, ok := decodeInto[T](d, fmt.Sprintf("%s[%q]", what, name), f); ok {
			all[name] = v
		}
	}
	return all
}

func (d *decoder) service(what, text string) (ipvs.ServiceKey, bool) {
	k, err := ipvs.ParseServiceKey(text)
	if err != nil {
		d.warn("%s: %v", what, err)
	}
	return k, err == nil
}

func (d *decoder) netns(raw json.RawMessage) {
	d.memory.NetNS, _ = decodeInto[string](d, "netns", raw)
}

func (d *decoder) engine(raw json.RawMessage) {
	d.memory.Engine, _ = decodeInto[string](d, "engine", raw)
}

func (d *decoder) paths(raw json.RawMessage) {
	d.memory.Paths, _ = decodeInto[bool](d, "paths", raw)
}

func (d *decoder) marks(raw json.RawMessage) {
	m, _ := decodeInto[marksJSON](d, "marks", raw)
	if m.Queues < 0 || m.Queues > 1<<16-int(m.Queue) {
		d.warn("marks: no %d queues from %d", m.Queues, m.Queue)
		return
	}
	d.memory.Marks = Marks(m)
}

func (d *decoder) owned(raw json.RawMessage) {
	d.memory.Owned = make(map[ipvs.ServiceKey]struct{})
	for _, text := range list[string](d, "owned", raw) {
		if k, ok := d.service("owned", text); ok {
			d.memory.Owned[k] = struct{}{}
		}
	}
}

func (d *decoder) health(raw json.RawMessage) {
	d.memory.Health = make(map[ipvs.DestinationKey]bool)
	d.memory.DownFor = make(map[ipvs.DestinationKey]time.Duration)
	servers(d, "health", raw, func(k ipvs.DestinationKey, h healthJSON) {
		d.memory.Health[k] = h.Down
		if h.Down {
			d.memory.DownFor[k] = duration(h.ForMS) + d.elapsed
		}
	})
}

func (d *decoder) advice(raw json.RawMessage) {
	d.memory.Advice = make(map[string]healthcheck.Advice)
	for name, j := range object[adviceJSON](d, "advice", raw) {
		d.memory.Advice[name] = healthcheck.Advice{Health: j.Health, Admin: j.Admin, Weight: j.Weight}
	}
}

func (d *decoder) returns(raw json.RawMessage) {
	d.memory.Returns = make(map[ipvs.DestinationKey]Return)
	servers(d, "returns", raw, func(k ipvs.DestinationKey, j returnJSON) {
		r := Return{Out: j.Out, Back: j.Back}
		if r.Back {
			r.For = duration(j.ForMS) + d.elapsed
		}
		d.memory.Returns[k] = r
	})
}

// servers decodes what is said of each real server, by service and address.
func servers[T any](d *decoder, what string, raw json.RawMessage, each func(ipvs.DestinationKey, T)) {
	for text, list := range object[json.RawMessage](d, what, raw) {
		k, ok := d.service(what, text)
		if !ok {
			continue
		}
		for address, v := range object[T](d, what+" of "+text, list) {
			a, err := netip.ParseAddrPort(address)
			if err != nil {
				d.warn("%s of %s: %v", what, text, err)
				continue
			}
			each(ipvs.DestinationKey{Service: k, Address: a}, v)
		}
	}
}

func (d *decoder) policies(raw json.RawMessage) {
	d.memory.Policies = make(map[ipvs.ServiceKey]Policy)
	for text, p := range object[policyJSON](d, "policies", raw) {
		k, ok := d.service("policies", text)
		if !ok {
			continue
		}
		if p.Quorum != "" && p.Quorum != QuorumHeld && p.Quorum != QuorumLost {
			d.warn("policies of %s: quorum %.20q", text, p.Quorum)
			p.Quorum = ""
		}
		d.memory.Policies[k] = Policy(p)
	}
}

func (d *decoder) order(raw json.RawMessage) {
	d.memory.Order = make(map[ipvs.ServiceKey][]netip.AddrPort)
	for text, addresses := range object[json.RawMessage](d, "order", raw) {
		k, ok := d.service("order", text)
		if !ok {
			continue
		}
		servers := list[netip.AddrPort](d, "order of "+text, addresses)
		d.memory.Order[k] = slices.DeleteFunc(servers, func(a netip.AddrPort) bool { return !a.IsValid() })
	}
}

func (d *decoder) drains(raw json.RawMessage) {
	seen := make(map[ipvs.DestinationKey]struct{})
	for _, j := range list[drainJSON](d, "drains", raw) {
		drain, err := j.drain()
		if err != nil {
			d.warn("drains: %v", err)
			continue
		}
		// A server that is wanted twice would keep lbd from writing anything.
		k := ipvs.DestinationKey{Service: drain.Service.ServiceKey, Address: drain.Destination.Address}
		if _, repeated := seen[k]; repeated {
			d.warn("drains: %v is repeated", k)
			continue
		}
		seen[k] = struct{}{}
		drain.Remaining = max(drain.Remaining-d.elapsed, 0)
		d.memory.Drains = append(d.memory.Drains, drain)
	}
}

func (d *decoder) sysctls(raw json.RawMessage) {
	d.memory.Sysctls = make(map[string]int)
	for name, v := range object[int](d, "sysctls", raw) {
		// The name becomes part of a path.
		if !isSysctlName(name) {
			d.warn("sysctls: bad name %q", name)
			continue
		}
		d.memory.Sysctls[name] = v
	}
}

func (d *decoder) timeouts(raw json.RawMessage) {
	j, ok := decodeInto[timeoutsJSON](d, "timeouts", raw)
	if !ok {
		return
	}
	t := ipvs.Timeouts{TCP: duration(j.TCPMS), TCPFin: duration(j.TCPFinMS), UDP: duration(j.UDPMS)}
	if err := t.Validate(); err != nil {
		d.warn("timeouts: %v", err)
		return
	}
	d.memory.Timeouts = t
}

func (d *decoder) vips(raw json.RawMessage) {
	d.memory.VIPs = make(map[VIP]struct{})
	for _, v := range list[vipJSON](d, "vips", raw) {
		if v.Interface == "" || !v.Prefix.IsValid() {
			d.warn("vips: no interface or no address in %+v", v)
			continue
		}
		d.memory.VIPs[VIP(v)] = struct{}{}
	}
}

func isSysctlName(s string) bool {
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' {
			return false
		}
	}
	return s != ""
}

// drain returns a drain whose service and real server the engine would take.
func (j drainJSON) drain() (Drain, error) {
	k, err := ipvs.ParseServiceKey(j.Service.Key)
	if err != nil {
		return Drain{}, err
	}
	d := Drain{
		Name:      j.Name,
		Remaining: duration(j.RemainingMS),
		Service: ipvs.Service{
			ServiceKey: k, Scheduler: j.Service.Scheduler, Flags: j.Service.Flags,
			Persistence: ipvs.Persistence{Timeout: duration(j.Service.TimeoutMS), Engine: j.Service.Engine},
		},
		Destination: ipvs.Destination{
			Address: j.Destination.Address, Weight: j.Destination.Weight, Forward: j.Destination.Forward,
			Tunnel: ipvs.TunnelOptions{Type: j.Destination.TunnelType, Port: j.Destination.TunnelPort,
				Checksum: j.Destination.TunnelChecksum},
			UpperThreshold: j.Destination.UpperThreshold, LowerThreshold: j.Destination.LowerThreshold,
		},
	}
	if d.Service.Persistence.Netmask, err = decodeNetmask(k.Family, j.Service.Netmask); err != nil {
		return Drain{}, err
	}
	d.Service = d.Service.Canonical()
	checked := d.Service
	// How ties are broken is of the userspace engine, which has longer names.
	name, _, _ := strings.Cut(string(checked.Scheduler), ":")
	checked.Scheduler = ipvs.Scheduler(name)
	if err := checked.Validate(); err != nil {
		return Drain{}, fmt.Errorf("service %v: %w", k, err)
	}
	if err := d.Destination.Validate(k); err != nil {
		return Drain{}, fmt.Errorf("real server %v of %v: %w", d.Destination.Address, k, err)
	}
	return d, nil
}

func decodeNetmask(f ipvs.Family, text string) (ipvs.Netmask, error) {
	if text == "" {
		return ipvs.Netmask{}, nil
	}
	if f == ipvs.IPv6 {
		n, err := strconv.ParseUint(text, 10, 8)
		if err != nil {
			return ipvs.Netmask{}, fmt.Errorf("prefix length %q: %w", text, err)
		}
		return ipvs.NetmaskV6(uint8(n)), nil
	}
	a, err := netip.ParseAddr(text)
	if err != nil || !a.Is4() {
		return ipvs.Netmask{}, fmt.Errorf("netmask %q is not an IPv4 mask", text)
	}
	return ipvs.NetmaskV4(a), nil
}
