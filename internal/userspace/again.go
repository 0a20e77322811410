package userspace

import (
	"github.com/lbd-project/lbd/internal/packet"
	"github.com/lbd-project/lbd/internal/userspace/flowtable"
	"github.com/lbd-project/lbd/ipvs"
)

// A client may send a SYN once more after conntrack has ended the flow that the
// first one made. A real server that still has the socket of an earlier
// connection from the client's port answers the SYN for that one; the client
// resets it, which closes the new flow in conntrack as well, and tries again at
// once (RFC 9293, 3.5.1). That is one connection: IPVS keeps it, and so its real
// server does here.

// maxAborted bounds how many such flows are remembered. More are forgotten, and
// counted twice where their SYN comes again.
const maxAborted = 1024

// aborted is a flow that ended a moment after it began, without being closed.
type aborted struct {
	server, seq, at uint32
}

// abort remembers a flow that ends, if its SYN may come again.
func (e *Engine) abort(f *flowtable.Flow) {
	t := f.Tuple()
	if t.Protocol != uint8(ipvs.TCP) || f.Seq == 0 || e.tick-f.Born > settleTicks || len(e.aborted) >= maxAborted {
		return
	}
	e.aborted[t] = aborted{f.Server, f.Seq, e.tick}
}

// again returns the real server that a SYN was given to before its flow ended,
// nil where it is the first.
func (e *Engine) again(svc *service, in *packet.Info) *server {
	if len(e.aborted) == 0 {
		return nil
	}
	a, ok := e.aborted[in.Tuple]
	if !ok {
		return nil
	}
	delete(e.aborted, in.Tuple)
	if a.seq != in.Seq || e.tick-a.at > settleTicks {
		return nil
	}
	if s := e.model.server(a.server); s != nil && !s.dead && s.service == svc {
		return s
	}
	return nil
}

// forgetAborted forgets the flows whose SYN will not come again.
func (e *Engine) forgetAborted() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for t, a := range e.aborted {
		if e.tick-a.at > settleTicks {
			delete(e.aborted, t)
		}
	}
}
