package memory

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lbd-project/lbd/ipvs"
)

// appendHealth appends {"SERVICE":{"ADDRESS":{"down":false,"for_ms":0}}}, in
// order. Each failed check waits until the health of all real servers is
// written, which by reflection took most of that time.
func appendHealth(b []byte, health map[ipvs.DestinationKey]bool, downFor map[ipvs.DestinationKey]time.Duration) []byte {
	type server struct {
		address netip.AddrPort
		down    bool
	}
	type service struct {
		name    string
		key     ipvs.ServiceKey
		servers []server
	}
	const line = len(`"100.100.100.100:65535":{"down":false,"for_ms":0},`)
	b = slices.Grow(b, len(health)*line)
	var services []service
	index := make(map[ipvs.ServiceKey]int)
	for k, down := range health {
		i, ok := index[k.Service]
		if !ok {
			i = len(services)
			index[k.Service] = i
			services = append(services, service{name: k.Service.String(), key: k.Service})
		}
		services[i].servers = append(services[i].servers, server{k.Address, down})
	}
	slices.SortFunc(services, func(a, b service) int { return strings.Compare(a.name, b.name) })
	b = append(b, '{')
	for i, s := range services {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendText(b, s.name), `:{`...)
		slices.SortFunc(s.servers, func(a, b server) int { return a.address.Compare(b.address) })
		for i, sv := range s.servers {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendAddress(b, sv.address), `:{"down":`...)
			b = strconv.AppendBool(b, sv.down)
			b = append(b, `,"for_ms":`...)
			var since time.Duration
			if sv.down {
				since = downFor[ipvs.DestinationKey{Service: s.key, Address: sv.address}]
			}
			b = strconv.AppendInt(b, since.Milliseconds(), 10)
			b = append(b, '}')
		}
		b = append(b, '}')
	}
	return append(b, '}')
}

// appendAddress appends an address in quotes.
func appendAddress(b []byte, a netip.AddrPort) []byte {
	if a.Addr().Zone() != "" {
		return appendText(b, a.String()) // of which anything may be part
	}
	return append(a.AppendTo(append(b, '"')), '"')
}

// appendText appends a text in quotes.
func appendText(b []byte, text string) []byte {
	quoted, _ := json.Marshal(text) // no text fails
	return append(b, quoted...)
}
