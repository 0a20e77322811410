package dnscheck

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/miekg/dns"

	"github.com/lbd-project/lbd/healthcheck"
)

// The transports of a query.
const (
	UDP = "udp"
	TCP = "tcp"
)

// Check asks one question of class IN. The zero value asks for the SOA record of
// the root over UDP and takes any answer whose code is NOERROR, even an empty
// one.
type Check struct {
	// Via is how the query leaves.
	Via healthcheck.Via
	// Transport is UDP, which is the default, or TCP.
	Transport string
	// Name is the name asked for, with or without the dot at its end; empty is
	// the root, ".". Its labels have at most 63 bytes and the whole of it 255 as
	// sent; "\." and "\DDD" stand for a byte as in zone files (RFC 1035,
	// section 5.1). Names beyond ASCII are given in their xn-- form.
	Name string
	// Type is the type asked for, such as 1 for A (see ParseType); 0 is SOA.
	// Types that are not asked for in queries, such as OPT and AXFR, are errors.
	Type uint16
	// NoRecursion clears the RD bit, as for a server that only has zones of its
	// own.
	NoRecursion bool
	// Rcodes are the response codes that are healthy, 0 to 15 (see ParseRcode);
	// none is NOERROR alone.
	Rcodes []int
	// Answers are the data of records of Type, in the form of zone files
	// ("10 mail.example.org."), that must be in the answer, in any order. Names
	// need no dot at their end. Of TXT, a text that does not begin with a quote
	// is taken literally, and only the text as a whole counts, not where it is
	// divided.
	//
	// An answer is what the asked name has, after its CNAME records have been
	// followed within the reply.
	Answers []string
	// Exact means that the answer must have no other record of Type.
	Exact bool
}

// Key returns a text of every option. Equal questions in another form, such as
// without the dot at the end, have equal keys.
func (c Check) Key() string {
	var b strings.Builder
	b.WriteString("dns ")
	b.WriteString(c.transport())
	// What is wrong is in the key as it was written: NewChecker refuses it.
	name := strconv.Quote(c.Name)
	if n, err := parseName(c.Name); err == nil {
		name = strings.ToLower(n)
	}
	fmt.Fprintf(&b, " %s %s", name, typeText(c.questionType()))
	if c.NoRecursion {
		b.WriteString(" norecurse")
	}
	for _, r := range c.rcodes() {
		b.WriteString(" rcode=" + strconv.Itoa(r))
	}
	answers := slices.Clone(c.Answers)
	slices.Sort(answers)
	for _, a := range slices.Compact(answers) {
		b.WriteString(" answer=" + strconv.Quote(a))
	}
	if c.Exact {
		b.WriteString(" exact")
	}
	b.WriteString(c.Via.Key())
	return b.String()
}

func (c Check) transport() string {
	if c.Transport == "" {
		return UDP
	}
	return c.Transport
}

func (c Check) questionType() uint16 {
	if c.Type == 0 {
		return dns.TypeSOA
	}
	return c.Type
}

// rcodes returns the healthy codes in order, each once.
func (c Check) rcodes() []int {
	if len(c.Rcodes) == 0 {
		return []int{dns.RcodeSuccess}
	}
	codes := slices.Clone(c.Rcodes)
	slices.Sort(codes)
	return slices.Compact(codes)
}

// NewChecker returns a checker of the server at target, or an error that says
// what is wrong with the options.
func (c Check) NewChecker(target netip.AddrPort, env healthcheck.Env) (healthcheck.Checker, error) {
	k, err := c.newChecker(target, env)
	if err != nil {
		return nil, fmt.Errorf("dns check: %w", err)
	}
	return k, nil
}

func (c Check) newChecker(target netip.AddrPort, env healthcheck.Env) (*checker, error) {
	if err := c.Via.Validate(target.Addr()); err != nil {
		return nil, err
	}
	if target.Port() == 0 {
		return nil, errors.New("no port")
	}
	k := &checker{
		via: c.Via, env: env, target: netip.AddrPortFrom(target.Addr().Unmap(), target.Port()),
		transport: c.transport(),
		question:  question{kind: c.questionType(), noRecursion: c.NoRecursion},
		want:      expectation{rcodes: c.rcodes(), exact: c.Exact},
	}
	if k.transport != UDP && k.transport != TCP {
		return nil, fmt.Errorf("transport %q is neither udp nor tcp", k.transport)
	}
	var err error
	if k.question.name, err = parseName(c.Name); err != nil {
		return nil, err
	}
	if err := checkType(k.question.kind); err != nil {
		return nil, err
	}
	for _, r := range k.want.rcodes {
		if r < 0 || r > maxRcode {
			return nil, fmt.Errorf("response code %d is not within 0 and %d", r, maxRcode)
		}
	}
	if k.want.answers, err = parseAnswers(c.Answers, k.question.kind); err != nil {
		return nil, err
	}
	if c.Exact && len(c.Answers) == 0 {
		return nil, errors.New("exact without expected answers")
	}
	return k, nil
}
