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
}

// query is a question on its way.
type query struct {
	id   uint16
	name string
	kind uint16
	wire []byte
}

// query returns a query with an id that nobody can guess.
func (q question) query() (query, error) {
	out := query{id: dns.Id(), name: q.name, kind: q.kind}
	m := dns.Msg{
		MsgHdr:   dns.MsgHdr{Id: out.id, Opcode: dns.OpcodeQuery, RecursionDesired: !q.noRecursion},
		Question: []dns.Question{{Name: out.name, Qtype: q.kind, Qclass: dns.ClassINET}},
	}
	var err error
	out.wire, err = m.Pack()
	return out, err
}

// asks reports whether a question is that of the query.
func (q query) asks(name string, kind, class uint16) bool {
	return strings.EqualFold(name, q.name) && kind == q.kind && class == dns.ClassINET
}
