package ruleset

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/lbd-project/lbd/internal/userspace/tunnel"
	"github.com/lbd-project/lbd/ipvs"
)

// padded is v at the size of whole registers, as in a concatenation.
func padded(v []byte) []byte { return append(v, make([]byte, -len(v)&3)...) }

func portKey(port uint16) []byte { return padded(binary.BigEndian.AppendUint16(nil, port)) }

// chainOf is the name of a service's chain.
func chainOf(id uint32) string { return fmt.Sprintf("service-%d", id) }

// hasChain says whether a service has rules of its own.
func (t *table) hasChain(s *Service) bool { return t.opts.FailOpen || s.Persistent }

// serviceElements calls yield for each element that a service has.
func (t *table) serviceElements(s *Service, yield func(set string, e element)) {
	set, chains, untracked := setServices, mapServices, setUntracked
	var keys []string
	switch k := s.Key; {
	case k.FWMark != 0:
		// Not marked yet where tracking begins.
		set, chains, untracked = setMarks, mapMarks, ""
		for _, p := range protocols {
			keys = append(keys, string(append(u32(k.FWMark), padded([]byte{byte(p)})...)))
		}
	default:
		key := append(k.Address.Addr().AsSlice(), padded([]byte{byte(k.Protocol)})...)
		if k.Address.Port() == 0 {
			set, chains, untracked = setAnyPort, mapAnyPort, setUntrackedAny
		} else {
			key = append(key, portKey(k.Address.Port())...)
		}
		keys = append(keys, string(key))
	}
	for _, k := range keys {
		yield(set, element{key: k})
		if s.untracked() && untracked != "" {
			yield(untracked, element{key: k})
		}
		if s.OnePacket {
			yield(setEach, element{key: k})
		}
		if t.hasChain(s) {
			yield(chains, element{key: k, chain: chainOf(s.ID)})
		}
	}
}

// serverElements calls yield for each element that a real server has.
func (t *table) serverElements(s Server, yield func(set string, e element)) {
	addr := s.Address.Addr().Unmap()
	mark := string(u32(s.Mark))
	switch s.Forward {
	case ipvs.Route:
		yield(mapHosts, element{key: mark, value: string(addr.AsSlice())})
		yield(setRouted, element{key: mark})
		return
	case ipvs.Tunnel:
		yield(mapHosts, element{key: mark, value: string(tunnel.Flows.Gateway(t.size == 16).AsSlice())})
		yield(setRouted, element{key: mark})
		yield(setTunnels, element{key: mark})
		return
	}
	yield(setClosing, element{key: mark})
	if s.Quiet {
		yield(setClosing, element{key: string(u32(s.Mark | t.opts.Inactive()))})
	}
	for _, direction := range []byte{0, 1} {
		yield(setTraffic, element{key: mark + string(padded([]byte{direction}))})
	}
	if s.Address.Port() == 0 {
		yield(mapAnyPortServer, element{key: mark, value: string(addr.AsSlice())})
		yield(setAnyPortSource, element{key: string(addr.AsSlice())})
		return
	}
	both := endpoint(addr, s.Address.Port())
	yield(mapServers, element{key: mark, value: both})
	yield(setSources, element{key: both})
}

// answerElement is what leads the answers of a one-packet service's real server
// back.
func answerElement(s Server, v *Service) (element, bool) {
	if !v.OnePacket || s.Forward != ipvs.Masq || s.Address.Port() == 0 {
		return element{}, false
	}
	return element{
		key:   endpoint(s.Address.Addr().Unmap(), s.Address.Port()),
		value: endpoint(v.Key.Address.Addr().Unmap(), v.Key.Address.Port()),
	}, true
}

// endpoint is "address . port".
func endpoint(a netip.Addr, port uint16) string {
	return string(append(a.AsSlice(), portKey(port)...))
}
