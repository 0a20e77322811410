package reconcile

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/lbd-project/lbd/ipvs"
)

// Describe says in words what the change changes: "weight 3 -> 5", the
// attributes of what is added, nothing for a delete.
func (c Change) Describe() string {
	switch c.Kind {
	case ipvs.OpAddService:
		return describeService(c.Op.Service)
	case ipvs.OpAddDestination:
		return describeDestination(c.Destination)
	case ipvs.OpUpdateService:
		attributes := serviceAttributes(c.ServiceBefore, c.Op.Service)
		for i := range attributes {
			if attributes[i].name == "scheduler" {
				// ip_vs_edit_service takes the old one away and waits for every
				// user of it before it binds the new one.
				attributes[i].after += " (refuses new connections for an instant)"
			}
		}
		return arrows(attributes)
	case ipvs.OpUpdateDestination:
		return arrows(destinationAttributes(c.DestinationBefore, c.Destination))
	default:
		return ""
	}
}

// String prints the change for a log: "update destination 10.0.0.2:80 of web
// (TCP 192.0.2.10:80): weight 3 -> 5".
func (c Change) String() string {
	s := c.Kind.String() + " "
	if c.Destination.Address.IsValid() {
		s += c.Destination.Address.String() + " of "
	}
	s += label(c.Name, c.Op.Service.ServiceKey)
	if what := c.Describe(); what != "" {
		s += ": " + what
	}
	return s
}

// label names a service: "web (TCP 192.0.2.10:80)".
func label(name string, k ipvs.ServiceKey) string {
	if name == "" {
		return k.String()
	}
	return fmt.Sprintf("%s (%v)", name, k)
}

// attribute is one that differs between two values of a thing.
type attribute struct {
	name, before, after string
}

func arrows(attributes []attribute) string {
	var parts []string
	for _, a := range attributes {
		parts = append(parts, fmt.Sprintf("%s %s -> %s", a.name, a.before, a.after))
	}
	return strings.Join(parts, ", ")
}

// differing keeps the attributes that differ.
func differing(all ...attribute) []attribute {
	var d []attribute
	for _, a := range all {
		if a.before != a.after {
			d = append(d, a)
		}
	}
	return d
}

func serviceAttributes(before, after ipvs.Service) []attribute {
	return differing(
		attribute{"scheduler", string(before.Scheduler), string(after.Scheduler)},
		attribute{"flags", flagNames(before), flagNames(after)},
		attribute{"persistence", persistence(before), persistence(after)},
		attribute{"netmask", netmask(before), netmask(after)},
		attribute{"persistence engine", orNone(before.Persistence.Engine), orNone(after.Persistence.Engine)},
	)
}

func destinationAttributes(before, after ipvs.Destination) []attribute {
	return differing(
		attribute{"weight", number(before.Weight), number(after.Weight)},
		attribute{"forwarding", forwarding(before), forwarding(after)},
		attribute{"upper threshold", number(before.UpperThreshold), number(after.UpperThreshold)},
		attribute{"lower threshold", number(before.LowerThreshold), number(after.LowerThreshold)},
	)
}

// describeService prints the attributes of a service that are not defaults.
func describeService(s ipvs.Service) string {
	text := "scheduler " + string(s.Scheduler)
	for _, a := range serviceAttributes(ipvs.Service{ServiceKey: s.ServiceKey, Scheduler: s.Scheduler}, s) {
		text += ", " + a.name + " " + a.after
	}
	return text
}

// describeDestination prints the weight and the method of a real server, and
// thresholds if it has some.
func describeDestination(d ipvs.Destination) string {
	text := fmt.Sprintf("weight %d, forwarding %s", d.Weight, forwarding(d))
	plain := ipvs.Destination{Weight: d.Weight, Forward: d.Forward, Tunnel: d.Tunnel}
	for _, a := range destinationAttributes(plain, d) {
		text += ", " + a.name + " " + a.after
	}
	return text
}

func number(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// forwarding prints "Masq", "Tunnel", "Tunnel gue:6080 csum".
func forwarding(d ipvs.Destination) string {
	text := d.Forward.String()
	t := d.Tunnel
	if d.Forward != ipvs.Tunnel || t == (ipvs.TunnelOptions{}) {
		return text
	}
	text += " " + t.Type.String()
	if t.Port != 0 {
		text += ":" + strconv.Itoa(int(t.Port))
	}
	if t.Checksum != ipvs.ChecksumNone {
		text += " " + t.Checksum.String()
	}
	return text
}

func persistence(s ipvs.Service) string {
	if s.Flags&ipvs.FlagPersistent == 0 {
		return "off"
	}
	return s.Persistence.Timeout.String()
}

func netmask(s ipvs.Service) string {
	if s.Family == ipvs.IPv6 {
		return "/" + s.Persistence.Netmask.Text(s.Family)
	}
	return s.Persistence.Netmask.Text(s.Family)
}

// flagNames prints the flags other than persistence: "one-packet, sh-port".
func flagNames(s ipvs.Service) string {
	var list []string
	if s.Flags&ipvs.FlagOnePacket != 0 {
		list = append(list, "one-packet")
	}
	list = append(list, s.Flags.SchedulerWords(s.Scheduler)...)
	rest := s.Flags &^ (ipvs.FlagPersistent | ipvs.FlagOnePacket | ipvs.FlagSched1 | ipvs.FlagSched2 | ipvs.FlagSched3)
	if rest != 0 {
		list = append(list, fmt.Sprintf("%#x", uint32(rest)))
	}
	return orNone(strings.Join(list, "+"))
}
