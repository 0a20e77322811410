package api

import (
	"net"
	"sync"
)

// limitListener lets at most cap(slots) connections be open. Further ones wait
// in the kernel's backlog.
type limitListener struct {
	net.Listener
	slots chan struct{}
	done  chan struct{}
	close func() error
}

func newLimitListener(l net.Listener, limit int) *limitListener {
	ll := &limitListener{Listener: l, slots: make(chan struct{}, limit), done: make(chan struct{})}
	ll.close = sync.OnceValue(func() error {
		close(ll.done)
		return l.Close()
	})
	return ll
}

// Accept waits for a free slot, then for a connection.
func (l *limitListener) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.done:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &limitConn{Conn: c, release: sync.OnceFunc(func() { <-l.slots })}, nil
}

// Close also wakes an Accept that waits for a slot.
func (l *limitListener) Close() error { return l.close() }

// limitConn gives its slot back when it is closed.
type limitConn struct {
	net.Conn
	release func()
}

func (c *limitConn) Close() error {
	err := c.Conn.Close()
	c.release()
	return err
}
