package conntrack

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/internal/flow"
	"github.com/lbd-project/lbd/internal/netns"
)

// idleSockets is how many sockets a Table keeps between calls.
const idleSockets = 2

// Table reads and changes the conntrack table of one network namespace. It is
// safe for concurrent use; calls do not wait for each other.
type Table struct {
	ns *netns.NS

	mu     sync.Mutex
	idle   []*socket
	closed bool
}

// OpenTable opens the table of the network namespace fd (a file descriptor,
// which is not kept), or of the calling thread's if it is negative.
func OpenTable(fd int) (*Table, error) {
	ns, err := netns.Open(fd)
	if err != nil {
		return nil, wrap("open table", err)
	}
	t := &Table{ns: ns}
	s, err := t.take()
	if err != nil {
		ns.Close()
		return nil, wrap("open table", err)
	}
	t.give(s)
	return t, nil
}

// Close closes the table. Calls that still run end as they would have.
func (t *Table) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.idle {
		s.close()
	}
	t.idle = nil
	if t.closed {
		return nil
	}
	t.closed = true
	return t.ns.Close()
}

// take returns a socket that nobody else uses.
func (t *Table) take() (*socket, error) {
	t.mu.Lock()
	if n := len(t.idle); n > 0 {
		s := t.idle[n-1]
		t.idle = t.idle[:n-1]
		t.mu.Unlock()
		return s, nil
	}
	t.mu.Unlock()
	var s *socket
	err := t.ns.Do(func() (err error) {
		s, err = openSocket()
		return err
	})
	return s, err
}

// give takes back a socket whose exchange is over.
func (t *Table) give(s *socket) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || len(t.idle) >= idleSockets {
		s.close()
		return
	}
	t.idle = append(t.idle, s)
}

// do makes one exchange on a socket of its own. build gets the sequence number.
func (t *Table) do(ctx context.Context, build func(seq uint32) ([]byte, error), each func(*message) error) (interrupted bool, err error) {
	s, err := t.take()
	if err != nil {
		return false, err
	}
	s.seq++
	req, err := build(s.seq)
	if err != nil {
		t.give(s)
		return false, err
	}
	interrupted, err = s.exchange(ctx, req, each)
	if errors.Is(err, errUndone) {
		// Its late answers would be taken for those of the next request.
		s.close()
	} else {
		t.give(s)
	}
	return interrupted, err
}

// Dump calls handle for each entry that passes the filter, while the dump runs.
// Handlers must not keep the event. An entry may come twice, and one that comes
// or goes meanwhile may come or not: the kernel walks its table without a lock.
// With ErrInterrupted entries may be missing that were there all the time.
func (t *Table) Dump(ctx context.Context, f Filter, handle func(*Event)) error {
	if err := f.check(); err != nil {
		return wrap("dump", err)
	}
	var ev Event
	interrupted, err := t.do(ctx,
		func(seq uint32) ([]byte, error) { return dumpRequest(seq, &f), nil },
		func(m *message) error {
			if m.Type != msgNew {
				return malformed("type %#x in a dump", m.Type)
			}
			ok, err := decodeEvent(m, &ev)
			if err != nil || !ok || !f.match(&ev) {
				return err
			}
			ev.Kind = New
			handle(&ev)
			return nil
		})
	if err == nil && interrupted {
		err = ErrInterrupted
	}
	return wrap("dump", err)
}

// Delete deletes the entries whose mark passes the filter; each makes a Destroy.
// It fails with ErrUnboundFlush, and sends nothing, unless MarkMask is set. The
// kernel walks the whole table before it returns, which ctx does not shorten:
// 30 ms with 100,000 entries, and 1 us more for each one deleted.
func (t *Table) Delete(ctx context.Context, f Filter) error {
	_, err := t.do(ctx, func(seq uint32) ([]byte, error) { return flushRequest(seq, &f) }, nil)
	return wrap(fmt.Sprintf("delete entries with mark %#x/%#x", f.Mark, f.MarkMask), err)
}

// DeleteFlow deletes the entry with the original tuple orig and, unless it is
// zero, the id of an Event of it. It fails with ErrNotFound where there is none.
func (t *Table) DeleteFlow(ctx context.Context, orig flow.Tuple, id uint32) error {
	_, err := t.do(ctx, func(seq uint32) ([]byte, error) { return deleteRequest(seq, &orig, id) }, nil)
	if errors.Is(err, unix.ENOENT) {
		err = ErrNotFound
	}
	return wrap(fmt.Sprintf("delete entry of %v", orig), err)
}

// Stats reads the statistics of the namespace's table.
func (t *Table) Stats(ctx context.Context) (Stats, error) {
	var st Stats
	_, err := t.do(ctx,
		func(seq uint32) ([]byte, error) { return cpuStatsRequest(seq), nil },
		func(m *message) error { return st.addCPU(m) })
	if err != nil {
		return Stats{}, wrap("read statistics", err)
	}
	_, err = t.do(ctx,
		func(seq uint32) ([]byte, error) { return globalStatsRequest(seq), nil },
		func(m *message) error { return st.setGlobal(m) })
	if err != nil {
		return Stats{}, wrap("read the number of entries", err)
	}
	return st, nil
}
