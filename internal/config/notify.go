package config

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/lbd-project/lbd/healthcheck/httpcheck"
	"github.com/lbd-project/lbd/internal/command"
)

const (
	// maxHooks is how many each list of notify may have: each has a goroutine and
	// a queue.
	maxHooks = 16
	// maxHookName and maxHookText bound a name, and a URL or a header.
	maxHookName = 64
	maxHookText = 8 << 10
)

// parseNotify reads notify. What may be a secret is in no message.
func (p *parser) parseNotify(c *Config, n *node) {
	lines := map[string]int{}
	p.object(n, notifyObject, func(k *key, v *node) {
		if v.kind != sequence {
			p.errorf(v, "%s: want a list of mappings", k.name)
			return
		}
		number := 0
		for item := v.first; item != nil && !p.full; item = item.next {
			if number++; number > maxHooks {
				p.errorf(item, "%s: want at most %d", k.name, maxHooks)
				return
			}
			if item.kind != mapping {
				p.errorf(item, "%s: want a mapping with %s", k.name, required(k.object))
				continue
			}
			before := len(p.errs)
			h, nameAt := p.hook(item, k)
			if len(p.errs) == before {
				p.nameHook(&h, orNode(nameAt, item), lines)
				c.Hooks = append(c.Hooks, h)
			}
		}
	})
}

// required returns the name of the first key that o needs.
func required(o *object) string {
	i := slices.IndexFunc(o.keys, func(k key) bool { return k.required })
	return o.keys[i].name
}

// hook reads an entry of a list of notify.
func (p *parser) hook(n *node, list *key) (h Hook, nameAt *node) {
	given := map[string]*node{}
	set := func(k *key, v *node) {
		switch k.name {
		case "name":
			h.Name, _ = p.text(k, v)
			if nameAt = v; h.Name == "" || len(h.Name) > maxHookName {
				p.errorf(v, "name: want 1 to %d bytes", maxHookName)
			}
		case "timeout":
			h.Timeout, _ = p.duration(k, v)
		case "max_age":
			h.MaxAge, _ = p.duration(k, v)
		case "events":
			words, ok := p.words(k, v)
			if ok && v.first == nil {
				p.errorf(v, "events: want at least one of %s; left out, it is all of them", and(k.enum))
			}
			for _, w := range words {
				h.Events = append(h.Events, w.value)
			}
		default:
			given[k.name] = v
		}
	}
	defaults(list.object, set)
	if !p.object(n, list.object, set) {
		return h, nameAt
	}
	if list.object == execHookObject {
		h.Exec = p.execHook(n, given)
	} else {
		h.Webhook = p.webhook(given)
	}
	return h, nameAt
}

// nameHook sees that a hook has a name of its own.
func (p *parser) nameHook(h *Hook, at *node, lines map[string]int) {
	if line, taken := lines[h.Name]; h.Name != "" && taken {
		p.errorf(at, "name: %s is repeated, first at line %d", h.Name, line)
		return
	}
	if h.Name == "" {
		base := ""
		if h.Exec != nil {
			base = h.Exec.Args[0]
		} else {
			base = h.Webhook.Host
		}
		h.Name = base
		for i := 2; lines[h.Name] > 0; i++ {
			h.Name = fmt.Sprintf("%s#%d", base, i)
		}
	}
	lines[h.Name] = at.line
}

func (p *parser) execHook(n *node, given map[string]*node) *ExecHook {
	h := &ExecHook{}
	before := len(p.errs)
	get := func(name string, read func(k *key, v *node)) {
		if k, v := lookUp(execHookObject, given, name); v != nil {
			read(k, v)
		}
	}
	get("command", func(k *key, v *node) {
		if h.Args = p.arguments(k, v); h.Args == nil && len(p.errs) == before {
			p.errorf(v, "command: want a program and its arguments, got an empty list")
		}
	})
	get("user", func(k *key, v *node) { h.User, _ = p.text(k, v) })
	get("group", func(k *key, v *node) { h.Group, _ = p.text(k, v) })
	if len(p.errs) > before || h.Args == nil {
		return h
	}
	if _, err := command.New(command.Spec{Args: h.Args, User: h.User, Group: h.Group}); err != nil {
		p.errorf(orNode(given["user"], orNode(given["group"], n)), "%v", err)
	}
	return h
}

func (p *parser) webhook(given map[string]*node) *Webhook {
	h := &Webhook{}
	at := given["url"]
	if at == nil {
		return h // which has been said
	}
	u, err := parseHookURL(at)
	if err != "" {
		p.errorf(at, "url: %s", err)
		return h
	}
	h.URL, h.Host = Secret(strings.Clone(at.value)), strings.Clone(u.Host)
	if n := given["headers"]; n != nil {
		h.Headers = p.hookHeaders(n)
	}
	n := given["tls"]
	switch {
	case u.Scheme == "https":
		h.TLS = p.tls(hookTLSObject, n)
	case n != nil:
		p.errorf(n, "tls: the URL is of http: want one of https")
	case !isLoopback(u.Hostname()):
		p.warnf(at, "url: http without TLS: events and headers can be read, and answered, by others on the way")
	}
	return h
}

// parseHookURL reads a URL, and says what is wrong with it without a word of it.
func parseHookURL(v *node) (u *url.URL, bad string) {
	if v.kind != scalar || v.isNull() {
		return nil, "want text"
	}
	for _, r := range v.value {
		if r <= ' ' || r > '~' {
			return nil, "want printable ASCII without blanks"
		}
	}
	u, err := url.Parse(v.value)
	port := 1
	if err == nil && u.Port() != "" {
		port, _ = strconv.Atoi(u.Port())
	}
	switch {
	case len(v.value) > maxHookText:
		return nil, fmt.Sprintf("want at most %d bytes", maxHookText)
	case err != nil, u.Opaque != "", u.Hostname() == "", port < 1, port > 65535, strings.HasSuffix(u.Host, ":"):
		return nil, "want an absolute URL such as https://alerts.example.com/lbd"
	case u.Scheme != "https" && u.Scheme != "http":
		return nil, "want https:// or http://"
	case u.User != nil:
		return nil, "want no user and password in it: write a header Authorization"
	case strings.Contains(v.value, "#"):
		return nil, "want no fragment"
	}
	return u, ""
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback()
}

// ownHeaders are those that lbd sets, or that belong to the connection.
var ownHeaders = []string{"Content-Type", "Content-Length", "Content-Encoding", "Transfer-Encoding", "Connection", "Keep-Alive", "Host", "Expect", "Trailer", "TE", "Upgrade"}

// hookHeaders reads headers, in the order of the file.
func (p *parser) hookHeaders(n *node) []HookHeader {
	if n.kind != mapping {
		p.errorf(n, "headers: want a mapping of names to texts")
		return nil
	}
	var list []HookHeader
	for kn := n.first; kn != nil && !p.full; kn = kn.next.next {
		name, v := kn.value, kn.next
		switch {
		case kn.kind != scalar || !httpcheck.IsToken(name) || len(name) > maxHookText:
			p.errorf(kn, "headers: want the name of a header, of letters, digits and dashes")
		case slices.ContainsFunc(ownHeaders, func(own string) bool { return strings.EqualFold(own, name) }):
			p.errorf(kn, "headers: %s is set by lbd", name)
		case slices.ContainsFunc(list, func(h HookHeader) bool { return strings.EqualFold(h.Name, name) }):
			p.errorf(kn, "headers: %s is repeated", name)
		case v.kind != scalar || v.isNull():
			p.errorf(v, "headers: %s: want text", name)
		case len(v.value) > maxHookText:
			p.errorf(v, "headers: %s: want at most %d bytes", name, maxHookText)
		case strings.ContainsFunc(v.value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
			p.errorf(v, "headers: %s has control characters", name)
		default:
			list = append(list, HookHeader{strings.Clone(name), Secret(strings.Clone(v.value))})
		}
	}
	return list
}
