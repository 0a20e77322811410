package userspace

import (
	"net/netip"
	"time"

	"github.com/lbd-project/lbd/ipvs"
	"github.com/lbd-project/lbd/sched"
)

// heldTimeout is what a template gets when its time is over and connections of
// it live (ip_vs_conn_expire in net/netfilter/ipvs/ip_vs_conn.c: 60*HZ). As in
// the kernel it is then what later connections set the timer to, too.
const heldTimeout = time.Minute

// templateKey is a client, or a network of clients, of a persistent service.
type templateKey struct {
	service uint32
	client  netip.Addr
}

// template is the memory of which real server a client goes to.
type template struct {
	key    templateKey
	server *server
	// timeout is what the timer is set to next, expires when it ends.
	timeout, expires time.Duration
	// flows are the connections that the template controls.
	flows uint32
	// stale says that it is no longer looked up, and waits for its end.
	stale bool
}

// templates are the persistence templates. A number, never 0, names one as long
// as flows of it live.
type templates struct {
	byKey map[templateKey]uint32
	// list has the templates by number; free ones have no server.
	list []template
	free []uint32
}

func newTemplates() templates {
	return templates{byKey: make(map[templateKey]uint32), list: make([]template, 1)}
}

// len returns how many there are, stale ones included.
func (ts *templates) len() int { return len(ts.list) - 1 - len(ts.free) }

// client masks an address as the service wants it.
func (s *service) client(a netip.Addr) netip.Addr {
	m := s.Persistence.Netmask
	if m == (ipvs.Netmask{}) {
		return a
	}
	if a.Is4() {
		b, v := a.As4(), m.V4()
		return netip.AddrFrom4([4]byte{b[0] & byte(v>>24), b[1] & byte(v>>16), b[2] & byte(v>>8), b[3] & byte(v)})
	}
	p, err := a.Prefix(int(m.V6()))
	if err != nil {
		return a
	}
	return p.Addr()
}

// persistent chooses the server of a new connection of a persistent service, and
// counts it; the template is 0 where there are too many (ip_vs_sched_persist in net/netfilter/ipvs/ip_vs_core.c).
func (e *Engine) persistent(svc *service, p *sched.Packet, st sched.State) (*server, uint32) {
	k := templateKey{svc.id, svc.client(p.Src)}
	n := e.templates.byKey[k]
	if n != 0 && !e.usable(&e.templates.list[n]) {
		e.makeStale(n)
		n = 0
	}
	var s *server
	if n != 0 {
		s = e.templates.list[n].server
		if st != sched.Uncounted {
			svc.table.Count(s.sched, sched.Uncounted, st)
		}
	} else {
		picked := svc.table.Pick(p, st)
		if picked == nil {
			return nil, 0
		}
		s = e.model.server(picked.ID())
		if e.templates.len() >= e.maxTemplates {
			e.forgotten++
			return s, 0
		}
		n = e.addTemplate(k, s, svc.Persistence.Timeout)
	}
	t := &e.templates.list[n]
	t.expires = e.now + t.timeout
	return s, n
}

// usable says whether a template still decides (ip_vs_check_template).
func (e *Engine) usable(t *template) bool {
	switch {
	case t.server.dead:
		return false
	case t.flows == 0 && e.now >= t.expires:
		return false
	case e.sysctls.expireQuiescentTemplate && t.server.Weight == 0:
		return false
	}
	return true
}

func (e *Engine) addTemplate(k templateKey, s *server, timeout time.Duration) uint32 {
	ts := &e.templates
	var n uint32
	if last := len(ts.free) - 1; last >= 0 {
		n, ts.free = ts.free[last], ts.free[:last]
	} else {
		n = uint32(len(ts.list))
		ts.list = append(ts.list, template{})
	}
	ts.list[n] = template{key: k, server: s, timeout: timeout, expires: e.now + timeout}
	ts.byKey[k] = n
	s.templates++
	s.service.table.Persist(s.sched, 1)
	return n
}

// makeStale keeps a template from being looked up. It counts until its end.
func (e *Engine) makeStale(n uint32) {
	t := &e.templates.list[n]
	if !t.stale {
		t.stale = true
		delete(e.templates.byKey, t.key)
	}
}

// dropTemplate ends a template that controls no connection.
func (e *Engine) dropTemplate(n uint32) {
	ts := &e.templates
	e.makeStale(n)
	s := ts.list[n].server
	s.templates--
	if !s.service.table.Persist(s.sched, -1) {
		e.underflow(s)
	}
	ts.list[n] = template{}
	ts.free = append(ts.free, n)
}

// expireTemplates ends those whose time is over, and with expire_nodest_conn
// those of deleted real servers. mu is held for some of them at a time.
func (e *Engine) expireTemplates() {
	const some = 4096
	for from := 1; ; from += some {
		e.mu.Lock()
		end := min(from+some, len(e.templates.list))
		for n := from; n < end; n++ {
			e.expireTemplate(uint32(n))
		}
		e.mu.Unlock()
		if end-from < some {
			return
		}
	}
}

func (e *Engine) expireTemplate(n uint32) {
	t := &e.templates.list[n]
	if t.server == nil {
		return
	}
	if t.server.dead && e.sysctls.expireNodestConn {
		e.makeStale(n)
		t.expires = min(t.expires, e.now)
	}
	switch {
	case e.now < t.expires:
	case t.flows > 0 && t.stale && t.server.dead:
		// It goes with the last of them.
	case t.flows > 0:
		t.timeout = heldTimeout
		t.expires = e.now + heldTimeout
	default:
		e.dropTemplate(n)
	}
}

// adoptTemplate takes in a template that the rules have, or that a flow of a
// persistent service is proof of.
func (e *Engine) adoptTemplate(s *server, client netip.Addr, expires time.Duration) uint32 {
	k := templateKey{s.service.id, s.service.client(client)}
	if n := e.templates.byKey[k]; n != 0 {
		return n
	}
	n := e.addTemplate(k, s, s.service.Persistence.Timeout)
	e.templates.list[n].expires = e.now + expires
	return n
}
