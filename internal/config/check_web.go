package config

import (
	"regexp"
	"strings"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/healthcheck/expect"
	"github.com/lbd-project/lbd/healthcheck/grpccheck"
	"github.com/lbd-project/lbd/healthcheck/httpcheck"
)

// web is one request of HTTP or several.
func (o *options) web(via healthcheck.Via) healthcheck.Method {
	c := httpcheck.Check{
		Via: via, Version: o.word("version"), Method: o.text("method"), Host: o.text("host"),
		Body: []byte(o.raw("body")), MaxBody: int64(o.integer("max_body")),
	}
	if o.kind == checkHTTPS {
		c.TLS = o.tls()
	}
	for _, h := range o.table("headers") {
		c.Headers = append(c.Headers, httpcheck.Header{Name: h[0], Value: h[1]})
	}
	n := o.given["requests"]
	if n == nil {
		c.Requests = []httpcheck.Request{o.p.request(o.given)}
		return c
	}
	for i := range requestKeys {
		if v := o.given[requestKeys[i].name]; v != nil {
			o.p.errorf(v, "%s: it belongs into requests, which is there", requestKeys[i].name)
		}
	}
	if n.kind != sequence || n.first == nil {
		o.p.errorf(n, "requests: want a list of requests, got %s", describe(n))
		return c
	}
	for item := n.first; item != nil && !o.p.full; item = item.next {
		given := map[string]*node{}
		if o.p.object(item, requestObject, func(k *key, v *node) { given[k.name] = v }) {
			c.Requests = append(c.Requests, o.p.request(given))
		}
	}
	return c
}

// request returns the request of which these keys are given.
func (p *parser) request(given map[string]*node) (r httpcheck.Request) {
	for i := range requestKeys {
		k, v := lookUp(requestObject, given, requestKeys[i].name)
		if v == nil {
			continue
		}
		switch k.name {
		case "path":
			if r.Path, _ = p.text(k, v); r.Path != "" && r.Path[0] != '/' {
				p.errorf(v, "path: want a path that begins with /, got %s", describe(v))
			}
		case "status":
			r.Status = p.statuses(k, v)
		case "match":
			p.bodyMatch(&r, k, v)
		case "expect_headers":
			r.Headers = p.headerMatches(k, v)
		case "digest":
			r.Digest, _ = p.text(k, v)
		default:
			panic(unhandled(k))
		}
	}
	return r
}

// statuses reads status codes: a number, a range, or a list of both.
func (p *parser) statuses(k *key, v *node) httpcheck.StatusRanges {
	items := []*node{v}
	if v.kind == sequence {
		items = nil
		for item := v.first; item != nil; item = item.next {
			items = append(items, item)
		}
	}
	var words []string
	for _, item := range items {
		if item.kind != scalar || item.isNull() {
			p.errorf(item, "%s: want a status or a range such as 200-299, got %s", k.name, describe(item))
			return nil
		}
		words = append(words, item.value)
	}
	ranges, err := httpcheck.ParseStatusRanges(strings.Join(words, ","))
	if err != nil {
		p.errorf(v, "%v", err)
	}
	return ranges
}

// bodyMatch reads what a body must have.
func (p *parser) bodyMatch(r *httpcheck.Request, k *key, v *node) {
	r.Match, r.Negate = p.pattern(k, v, bodyObject)
	if r.Match != nil && v.kind == mapping {
		p.offsets(r, v)
	}
}

// headerMatches reads what headers must have, in the order of the file.
func (p *parser) headerMatches(k *key, v *node) []httpcheck.HeaderMatch {
	if v.kind != mapping {
		p.errorf(v, "%s: want a mapping of names to what they must have, got %s", k.name, describe(v))
		return nil
	}
	var list []httpcheck.HeaderMatch
	lines := map[string]int{}
	for kn := v.first; kn != nil && !p.full; kn = kn.next.next {
		m := httpcheck.HeaderMatch{}
		var ok bool
		if m.Name, ok = p.text(k, kn); !ok {
			continue
		}
		name := strings.ToLower(m.Name)
		if first, ok := lines[name]; ok {
			p.errorf(kn, "%s: %s is repeated, first at line %d", k.name, m.Name, first)
			continue
		}
		lines[name] = kn.line
		if kn.next.kind == sequence || kn.next.isNull() {
			p.errorf(kn.next, "%s: %s: want text or a mapping, got %s", k.name, m.Name, describe(kn.next))
			continue
		}
		if m.Match, m.Negate = p.pattern(k, kn.next, headerObject); m.Match != nil {
			list = append(list, m)
		}
	}
	return list
}

// pattern reads what a text must have, as an expression; nil if that is wrong.
func (p *parser) pattern(k *key, v *node, o *object) (re *regexp.Regexp, negate bool) {
	e := p.expect(k, v, o)
	if e.IsZero() {
		return nil, false
	}
	pattern := e.Value
	if e.Kind == expect.Text {
		pattern = regexp.QuoteMeta(pattern)
		if e.Start {
			pattern = `\A` + pattern
		}
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		p.errorf(v, "%s: %v", k.name, err)
		return nil, false
	}
	return re, e.Negate
}

// offsets reads where a match must begin.
func (p *parser) offsets(r *httpcheck.Request, v *node) {
	var latest *node
	for kn := v.first; kn != nil; kn = kn.next.next {
		to := map[string]*int{"min_offset": &r.MinOffset, "max_offset": &r.MaxOffset}[kn.value]
		if to == nil {
			continue
		}
		k, _ := lookUp(bodyObject, nil, kn.value)
		i, _ := p.integer(k, kn.next)
		if *to = int(i); to == &r.MaxOffset {
			latest = kn.next
		}
	}
	if latest != nil && r.MaxOffset > 0 && r.MaxOffset < r.MinOffset {
		p.errorf(latest, "max_offset: want at least min_offset, %d, got %d", r.MinOffset, r.MaxOffset)
		r.MaxOffset = 0
	}
}

func (o *options) grpc(via healthcheck.Via) healthcheck.Method {
	return grpccheck.Check{Via: via, TLS: o.tlsIfGiven(), Service: o.text("service"), Authority: o.text("authority")}
}
