package config

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

const (
	// minMarkBits leave room for 14 real servers.
	minMarkBits = 4
	// minStateBits are one for a connection that is inactive, one for a request
	// that waits for its answer, one for an entry that is used again.
	minStateBits = 3
	// maxDefaultQueues is how many queues there are at most where the file does not
	// say.
	maxDefaultQueues = 4
)

// QueueCount returns how many queues there are on a host with so many processors.
func (u *Userspace) QueueCount(processors int) int {
	return cmp.Or(u.Queues, max(1, min(processors, maxDefaultQueues)))
}

// userspaceNodes are where the file says something of the userspace engine; nil
// where it does not.
type userspaceNodes struct{ mark, state, queues, base *node }

// setUserspace sets a key of userspace.
func (p *parser) setUserspace(k *key, v *node) {
	u := &p.userspace
	switch k.name {
	case "queues":
		i, _ := p.integer(k, v)
		u.Queues, p.userspaceAt.queues = int(i), v
	case "queue_base":
		i, _ := p.integer(k, v)
		u.QueueBase, p.userspaceAt.base = uint16(i), v
	case "queue_length":
		i, _ := p.integer(k, v)
		u.QueueLength = uint32(i)
	case "mark_mask":
		u.MarkMask = p.mask(k, v, minMarkBits)
		p.userspaceAt.mark = v
	case "ct_state_mask":
		u.CTStateMask = p.mask(k, v, minStateBits)
		p.userspaceAt.state = v
	case "fail_open":
		u.FailOpen, _ = p.boolean(k, v)
	case "overhead":
		if s, ok := p.word(k, v); ok {
			_ = u.Overhead.UnmarshalText([]byte(s)) // the schema has no other words
		}
	default:
		panic(unhandled(k))
	}
}

// parseUserspace reads userspace.
func (p *parser) parseUserspace(n *node) {
	before := len(p.errs)
	if !p.object(n, userspaceObject, p.setUserspace) || len(p.errs) > before {
		return
	}
	u, at := &p.userspace, &p.userspaceAt
	if shared := u.MarkMask & u.CTStateMask; shared != 0 {
		p.errorf(orNode(at.state, at.mark), "ct_state_mask: %#08x and mark_mask %#08x share the bits %#x", u.CTStateMask, u.MarkMask, shared)
	}
	queues := cmp.Or(u.Queues, maxDefaultQueues)
	if last := int(u.QueueBase) + queues - 1; last > math.MaxUint16 {
		p.errorf(orNode(at.base, at.queues), "queue_base: the last of %d queues from %d would be %d: want at most %d", queues, u.QueueBase, last, math.MaxUint16)
	}
}

// mask reads contiguous bits, at least so many. It is 0 after an error.
func (p *parser) mask(k *key, v *node, least int) uint32 {
	m, ok := parseBits(v)
	ones := bits.OnesCount32(m)
	switch contiguous := bits.Len32(m)-bits.TrailingZeros32(m) == ones; {
	case !ok:
		p.errorf(v, "%s: want a mask of 32 bits such as %s, got %s", k.name, k.def, describe(v))
	case ones < least:
		p.errorf(v, "%s: want at least %d bits, got %#08x", k.name, least, m)
	case !contiguous:
		p.errorf(v, "%s: want bits without a gap, got %#08x", k.name, m)
	default:
		return m
	}
	return 0
}

// bits reads any 32 bits.
func (p *parser) bits(k *key, v *node) (uint32, bool) {
	m, ok := parseBits(v)
	if !ok {
		p.errorf(v, "%s: want 32 bits such as %s, got %s", k.name, k.example, describe(v))
	}
	return m, ok
}

// parseBits reads a number, or text such as "0x0fffff00".
func parseBits(v *node) (uint32, bool) {
	if v.kind != scalar {
		return 0, false
	}
	if hex, ok := strings.CutPrefix(v.value, "0x"); ok {
		m, err := strconv.ParseUint(hex, 16, 32)
		return uint32(m), err == nil
	}
	m, ok := parseInt(v)
	return uint32(m), ok && m >= 0 && m <= math.MaxUint32
}

// checkCapacity refuses more real servers than the mark has names for: neither
// 0, which is no mark, nor all ones, which stands for no real server.
func (p *parser) checkCapacity(at *node, c *Config) {
	n := 0
	for i := range c.VirtualServices {
		n += len(c.VirtualServices[i].RealServers) + len(c.VirtualServices[i].Backup)
	}
	room := 1<<bits.OnesCount32(c.Userspace.MarkMask) - 2
	if c.Userspace.MarkMask != 0 && n > room {
		p.refuse(EngineUserspace, at, "userspace.mark_mask: %#08x has names for %d real servers, and the file has %d: give it more bits", c.Userspace.MarkMask, room, n)
	}
}

// refuse notes what one engine cannot do. It is an error where no other is left.
func (p *parser) refuse(e Engine, n *node, format string, args ...any) {
	if len(p.refused[e]) < maxKept {
		p.refused[e] = append(p.refused[e], p.error(n, format, args...))
	}
}

// chooseEngine turns what the engine of the file refuses into errors. With auto
// one engine must be left.
func (p *parser) chooseEngine(c *Config) {
	for e, errs := range p.refused {
		p.refused[e] = slices.Compact(errs.sorted())
	}
	kernel, userspace := p.refused[EngineKernel], p.refused[EngineUserspace]
	switch {
	case c.Engine != EngineAuto:
		p.errs = append(p.errs, p.refused[c.Engine]...)
	case len(kernel) > 0 && len(userspace) > 0:
		p.errs = append(append(p.errs, kernel...), userspace...)
	default:
		c.Refused = p.refused
	}
	p.errs = p.errs[:min(len(p.errs), maxKept)]
}
