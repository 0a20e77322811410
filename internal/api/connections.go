package api

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/lbd-project/lbd/ipvs"
)

// Connection is a line of the answer of GET /v1/connections: a connection, or a
// template of persistence.
type Connection struct {
	// Service is the name of the virtual service, its key where it has none. It is
	// empty for a service that is gone, and where several firewall mark services
	// have the real server: the table does not tell the mark.
	Service string `json:"service,omitempty"`
	// Protocol is IP for a template of a firewall mark service.
	Protocol string `json:"protocol"`
	// Client has port 0, and an address masked by the service's netmask, in a
	// template.
	Client string `json:"client"`
	// Virtual is the address that the client used; the service's key in a template
	// of a firewall mark service.
	Virtual    string `json:"virtual"`
	RealServer string `json:"real_server"`
	// State is the kernel's name: one of ConnectionStates.
	State string `json:"state"`
	// ExpiresSeconds is what is left, unless a packet comes.
	ExpiresSeconds int  `json:"expires_seconds"`
	Template       bool `json:"template"`
	// PersistenceEngine and PersistenceData are set where the service has an
	// engine. The data are as a client sent them.
	PersistenceEngine string `json:"persistence_engine,omitempty"`
	PersistenceData   string `json:"persistence_data,omitempty"`
}

// ConnectionStates are the kernel's names of states: of TCP, UDP and SCTP, of
// templates, and of the rest (tcp_state_name_table and its likes in
// net/netfilter/ipvs/ip_vs_proto*.c).
var ConnectionStates = []string{
	"NONE", "ESTABLISHED", "SYN_SENT", "SYN_RECV", "FIN_WAIT", "TIME_WAIT", "CLOSE", "CLOSE_WAIT", "LAST_ACK", "LISTEN", "SYNACK",
	"UDP",
	"INIT1", "INIT", "C-SENT", "C-REPLIED", "C-WAIT", "COOKIE", "C-ECHOED", "S-SENT", "S-RECEIVED", "S-ACK-SENT", "REJECTED", "CLOSED",
	"ASSURED",
	"ERR!", // of a protocol without states
}

// ConnectionState is one of ConnectionStates; empty for any.
type ConnectionState string

// MarshalText implements encoding.TextMarshaler.
func (s ConnectionState) MarshalText() ([]byte, error) { return []byte(s), nil }

// UnmarshalText accepts the states in upper or lower case.
func (s *ConnectionState) UnmarshalText(b []byte) error {
	name := strings.ToUpper(string(b))
	if !slices.Contains(ConnectionStates, name) {
		return fmt.Errorf("want a state: %s", strings.Join(ConnectionStates, " "))
	}
	*s = ConnectionState(name)
	return nil
}

// Endpoint matches addresses with ports. The zero value matches all.
type Endpoint struct {
	prefix netip.Prefix
	port   uint16
	// ported says that the port matters.
	ported bool
}

// String prints what UnmarshalText parses; nothing for the zero value.
func (e Endpoint) String() string {
	switch {
	case !e.prefix.IsValid():
		return ""
	case e.ported:
		return netip.AddrPortFrom(e.prefix.Addr(), e.port).String()
	case e.prefix.IsSingleIP():
		return e.prefix.Addr().String()
	}
	return e.prefix.String()
}

// MarshalText implements encoding.TextMarshaler with the form of String.
func (e Endpoint) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// UnmarshalText parses an address, an address with a port, or a prefix, whose
// host bits do not matter.
func (e *Endpoint) UnmarshalText(b []byte) error {
	text := string(b)
	if ap, err := netip.ParseAddrPort(text); err == nil {
		return e.set(ap.Addr(), ap.Addr().BitLen(), ap.Port(), true)
	}
	if a, err := netip.ParseAddr(text); err == nil {
		return e.set(a, a.BitLen(), 0, false)
	}
	if p, err := netip.ParsePrefix(text); err == nil {
		return e.set(p.Addr(), p.Bits(), 0, false)
	}
	return errEndpoint
}

var errEndpoint = fmt.Errorf("want an address, an address with a port or a prefix: 192.0.2.1, [2001:db8::1]:80, 192.0.2.0/24")

func (e *Endpoint) set(a netip.Addr, bits int, port uint16, ported bool) error {
	if a.Is4In6() && bits >= 96 {
		a, bits = a.Unmap(), bits-96
	}
	p, err := a.Prefix(bits)
	if err != nil || a.Zone() != "" {
		return errEndpoint
	}
	*e = Endpoint{p, port, ported}
	return nil
}

func (e Endpoint) match(ap netip.AddrPort) bool {
	return !e.prefix.IsValid() || e.prefix.Contains(ap.Addr()) && (!e.ported || e.port == ap.Port())
}

// ConnectionQuery says which connections are wanted: those that match each field.
// The zero value is all.
type ConnectionQuery struct {
	// Service is a name or a key. Of a firewall mark service all connections match
	// whose real server is one of its, and whose virtual address is no other
	// service's.
	Service        string
	Client, Server Endpoint
	State          ConnectionState
}

// Owners says which virtual services connections are of. The zero value knows
// none. It must not change any more once Select was called.
type Owners struct {
	// services has each service alone in its list.
	services map[ipvs.ServiceKey][]owner
	// marked are the firewall mark services of each of their real servers.
	marked map[netip.AddrPort][]owner
}

type owner struct {
	key  ipvs.ServiceKey
	name string
}

// Add adds a service with its real servers; name is empty for one that has none.
func (o *Owners) Add(k ipvs.ServiceKey, name string, servers iter.Seq[netip.AddrPort]) {
	if o.services == nil {
		o.services, o.marked = make(map[ipvs.ServiceKey][]owner), make(map[netip.AddrPort][]owner)
	}
	if name == "" {
		name = k.String()
	}
	w := owner{k, name}
	o.services[k] = []owner{w}
	if k.FWMark == 0 {
		return
	}
	for s := range servers {
		o.marked[s] = append(o.marked[s], w)
	}
}

// AddEntry adds a service of a table, which has no name.
func (o *Owners) AddEntry(e ipvs.TableEntry) {
	o.Add(e.ServiceKey, "", func(yield func(netip.AddrPort) bool) {
		for i := range e.Destinations {
			if !yield(e.Destinations[i].Address) {
				return
			}
		}
	})
}

// key finds a service by its name or key.
func (o *Owners) key(name string) (ipvs.ServiceKey, error) {
	for k, w := range o.services {
		if w[0].name == name || k.String() == name {
			return k, nil
		}
	}
	return ipvs.ServiceKey{}, fmt.Errorf("virtual service %q: %w", name, ErrNotFound)
}

// of returns the services that a connection may be of.
func (o *Owners) of(c *ipvs.Connection) []owner {
	if c.Protocol == 0 {
		return o.services[markOf(c)]
	}
	k := ipvs.AddrService(c.Protocol, c.Virtual)
	if w := o.services[k]; w != nil {
		return w
	}
	k.Address = netip.AddrPortFrom(k.Address.Addr(), 0)
	if w := o.services[k]; w != nil {
		return w
	}
	if len(o.marked) == 0 {
		return nil
	}
	exact, any := o.marked[c.Server], o.marked[netip.AddrPortFrom(c.Server.Addr(), 0)]
	if len(exact) == 0 || c.Server.Port() == 0 {
		return any
	}
	return slices.Concat(exact, any)
}

// markOf returns the service of a template that has a mark for an address.
func markOf(c *ipvs.Connection) ipvs.ServiceKey {
	b := c.Virtual.Addr().AsSlice() // the mark is in the first four bytes
	return ipvs.MarkService(ipvs.FamilyOf(c.Virtual.Addr()), uint32(b[0])<<24|uint32(b[1])<<16|uint32(b[2])<<8|uint32(b[3]))
}

// Select returns those of a table's connections that a query wants. The error
// matches ErrNotFound if there is no such service.
func (o *Owners) Select(conns iter.Seq2[ipvs.Connection, error], q ConnectionQuery) (iter.Seq2[Connection, error], error) {
	var key ipvs.ServiceKey
	if q.Service != "" {
		var err error
		if key, err = o.key(q.Service); err != nil {
			return nil, err
		}
	}
	wanted := func(c *ipvs.Connection, owners []owner) bool {
		return (q.State == "" || string(q.State) == c.State) && q.Client.match(c.Client) && q.Server.match(c.Server) &&
			(q.Service == "" || slices.ContainsFunc(owners, func(w owner) bool { return w.key == key }))
	}
	return func(yield func(Connection, error) bool) {
		for c, err := range conns {
			if err != nil {
				yield(Connection{}, err)
				return
			}
			owners := o.of(&c)
			if wanted(&c, owners) && !yield(tableConnection(&c, owners), nil) {
				return
			}
		}
	}, nil
}

func tableConnection(c *ipvs.Connection, owners []owner) Connection {
	out := Connection{
		Protocol: c.Protocol.String(), Client: c.Client.String(), Virtual: c.Virtual.String(), RealServer: c.Server.String(),
		State: c.State, ExpiresSeconds: int(c.Expires / time.Second),
		// Only templates have these states without a client's port.
		Template:          c.Client.Port() == 0 && (c.State == "NONE" || c.State == "ASSURED"),
		PersistenceEngine: c.Engine, PersistenceData: c.EngineData,
	}
	if c.Protocol == 0 {
		out.Protocol, out.Virtual = "IP", markOf(c).String()
	}
	if len(owners) == 1 {
		out.Service = owners[0].name
	}
	return out
}
