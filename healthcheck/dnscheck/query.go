package dnscheck

import (
	"strings"

	"github.com/miekg/dns"
)

// question is what a checker asks, each time anew.
type question struct {
	name        string
	kind        uint16
	noRecursion bool
	edns        uint16
	mixed       bool
}

// query is a question on its way.
type query struct {
	id    uint16
	name  string
	kind  uint16
	exact bool // the reply must repeat the case of name
	wire  []byte
}

// query returns a query with an id that nobody can guess.
func (q question) query() (query, error) {
	out := query{id: dns.Id(), name: q.name, kind: q.kind, exact: q.mixed}
	if q.mixed {
		out.name = mixCase(q.name)
	}
	m := dns.Msg{
		MsgHdr:   dns.MsgHdr{Id: out.id, Opcode: dns.OpcodeQuery, RecursionDesired: !q.noRecursion},
		Question: []dns.Question{{Name: out.name, Qtype: q.kind, Qclass: dns.ClassINET}},
	}
	if q.edns != 0 {
		m.SetEdns0(q.edns, false)
	}
	var err error
	out.wire, err = m.Pack()
	return out, err
}

// asks reports whether a question is that of the query.
func (q query) asks(name string, kind, class uint16) bool {
	same := name == q.name || !q.exact && strings.EqualFold(name, q.name)
	return same && kind == q.kind && class == dns.ClassINET
}
