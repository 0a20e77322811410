package ruleset

import (
	"encoding/binary"
	"fmt"
	"net/netip"
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
	set, chains := setServices, mapServices
	var keys []string
	switch k := s.Key; {
	case k.FWMark != 0:
		set, chains = setMarks, mapMarks
		for _, p := range protocols {
			keys = append(keys, string(append(u32(k.FWMark), padded([]byte{byte(p)})...)))
		}
	default:
		key := append(k.Address.Addr().AsSlice(), padded([]byte{byte(k.Protocol)})...)
		if k.Address.Port() == 0 {
			set, chains = setAnyPort, mapAnyPort
		} else {
			key = append(key, portKey(k.Address.Port())...)
		}
		keys = append(keys, string(key))
	}
	for _, k := range keys {
		yield(set, element{key: k})
		if t.hasChain(s) {
			yield(chains, element{key: k, chain: chainOf(s.ID)})
		}
	}
}

// serverElements calls yield for each element that a real server has.
func (t *table) serverElements(s Server, yield func(set string, e element)) {
	addr := s.Address.Addr().Unmap()
	mark := string(u32(s.Mark))
	if s.Address.Port() == 0 {
		yield(mapAnyPortServer, element{key: mark, value: string(addr.AsSlice())})
		yield(setAnyPortSource, element{key: string(addr.AsSlice())})
		return
	}
	both := endpoint(addr, s.Address.Port())
	yield(mapServers, element{key: mark, value: both})
	yield(setSources, element{key: both})
}

// endpoint is "address . port".
func endpoint(a netip.Addr, port uint16) string {
	return string(append(a.AsSlice(), portKey(port)...))
}
