package dnscheck

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/miekg/dns"
)

// The fixed parts of a message (RFC 1035, section 4.1).
const (
	headerLen = 12
	recordLen = 10 // of a record after its name: type, class, TTL, length
)

// reply is what counts of a message that answers a query.
type reply struct {
	rcode     int
	truncated bool
	// records are those of the answer section that are of the asked type, or any
	// if that is ANY, or CNAME.
	records []dns.RR
}

// notOurs is the error of a message that answers something else than the query;
// it is the reason.
type notOurs string

func (e notOurs) Error() string { return string(e) }

// parseReply reads a message. The error is a notOurs where the message does not
// answer q, and another one where it does but is broken. Of a truncated reply
// only the header is read.
//
// It takes apart only the records that count: in a hostile message of 64 KiB a
// pointer of two bytes can stand for a name of a thousand, many thousand times.
func parseReply(msg []byte, q query) (reply, error) {
	if len(msg) < headerLen {
		return reply{}, notOurs(fmt.Sprintf("a message of %d bytes", len(msg)))
	}
	// A message that ends after the header, so that Unpack reads nothing else.
	var head dns.Msg
	if err := head.Unpack(append(msg[:4:4], make([]byte, headerLen-4)...)); err != nil {
		return reply{}, notOurs(err.Error())
	}
	switch {
	case head.Id != q.id:
		return reply{}, notOurs("another id")
	case !head.Response:
		return reply{}, notOurs("a query")
	case head.Opcode != dns.OpcodeQuery:
		return reply{}, notOurs("another opcode")
	}
	r := reply{rcode: head.Rcode, truncated: head.Truncated}
	s := scanner{msg: msg, off: headerLen}
	if err := s.question(q, head.Rcode); err != nil {
		return reply{}, err
	}
	if r.truncated {
		return r, nil
	}
	for section, at := range []int{6, 8, 10} {
		for range binary.BigEndian.Uint16(msg[at:]) {
			rr, err := s.record(func(kind uint16) bool {
				return section == 0 && (kind == q.kind || kind == dns.TypeCNAME || q.kind == dns.TypeANY)
			})
			switch {
			case err != nil:
				return reply{}, fmt.Errorf("broken reply: %w", err)
			case rr != nil && rr.Header().Class == dns.ClassINET:
				r.records = append(r.records, rr)
			}
		}
	}
	return r, nil
}

// scanner walks through a message.
type scanner struct {
	msg []byte
	off int
}

// question reads the question section, which must be that of q. A server that
// could not even read the query may leave it out.
func (s *scanner) question(q query, rcode int) error {
	count := binary.BigEndian.Uint16(s.msg[4:])
	if count == 0 && rcode != dns.RcodeSuccess {
		return nil
	}
	if count != 1 {
		return notOurs(fmt.Sprintf("%d questions", count))
	}
	name, off, err := dns.UnpackDomainName(s.msg, s.off)
	if err != nil {
		return fmt.Errorf("broken reply: question: %w", err)
	}
	if off+4 > len(s.msg) {
		return errors.New("broken reply: question: cut short")
	}
	kind, class := binary.BigEndian.Uint16(s.msg[off:]), binary.BigEndian.Uint16(s.msg[off+2:])
	if !q.asks(name, kind, class) {
		return notOurs("another question")
	}
	s.off = off + 4
	return nil
}

// record reads one record and returns it if its type is wanted, else nil.
func (s *scanner) record(wanted func(kind uint16) bool) (dns.RR, error) {
	if s.off >= len(s.msg) {
		return nil, errors.New("fewer records than announced")
	}
	_, off, err := dns.UnpackDomainName(s.msg, s.off)
	if err != nil {
		return nil, err
	}
	if off+recordLen > len(s.msg) {
		return nil, errors.New("record cut short")
	}
	kind := binary.BigEndian.Uint16(s.msg[off:])
	end := off + recordLen + int(binary.BigEndian.Uint16(s.msg[off+recordLen-2:]))
	if end > len(s.msg) {
		return nil, errors.New("record cut short")
	}
	begin := s.off
	s.off = end
	if !wanted(kind) {
		return nil, nil
	}
	rr, _, err := dns.UnpackRR(s.msg, begin)
	if err != nil {
		return nil, fmt.Errorf("%s record: %w", typeText(kind), err)
	}
	return rr, nil
}

// answer returns the records of the asked name and of the names that its CNAME
// records lead to.
func (r reply) answer(q query) []dns.RR {
	aliases := make(map[string]string)
	for _, rr := range r.records {
		if c, ok := rr.(*dns.CNAME); ok {
			aliases[strings.ToLower(c.Hdr.Name)] = strings.ToLower(c.Target)
		}
	}
	owners := make(map[string]bool)
	for name, ok := strings.ToLower(q.name), true; ok && !owners[name]; {
		owners[name] = true
		name, ok = aliases[name]
	}
	var out []dns.RR
	for _, rr := range r.records {
		h := rr.Header()
		if (h.Rrtype == q.kind || q.kind == dns.TypeANY) && owners[strings.ToLower(h.Name)] {
			out = append(out, rr)
		}
	}
	return out
}
