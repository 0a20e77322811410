package ipvs

import (
	"context"
	"errors"
	"io"
	"os"
)

// DestinationCounts are the weight and the connection counts of a real server
// at one moment.
type DestinationCounts struct {
	DestinationKey
	// Weight is the programmed weight.
	Weight uint32
	// Conns are the counts. Persistent is zero: the fast path does not have it.
	Conns Conns
}

// Counts returns the weight and the active and inactive connections of every
// real server, those of a service together and in list order, services in no
// order; nil if there are none. It costs a small part of Table: it reads
// /proc/net/ip_vs, which has no persistent counts, thresholds, tunnels and
// statistics. It does not wait for a running Apply.
//
// It is not a snapshot: the file is made as it is read, and a service that is
// added or deleted meanwhile can hide another for once.
//
// The file does not say whether a firewall mark service is IPv4 or IPv6. The
// family is that of its real servers, unless all use the Tunnel method, which
// may cross families; then the netlink table is asked too. Where the same mark
// exists for both families with nothing but tunneled servers, the two are told
// apart by their order, which is the same in the file and in the netlink table.
// If somebody deletes and re-creates one of them between those two readings,
// their counts are swapped for once.
func (c *Client) Counts(ctx context.Context) ([]DestinationCounts, error) {
	counts, err := c.counts.read(ctx)
	if err == nil && counts.unresolved() {
		var list []ServiceStatus
		err = c.run(ctx, func() error {
			list, err = c.servicesInOrder(ctx)
			return err
		})
		counts.resolve(list)
	}
	if err != nil {
		return nil, &Error{Op: "read counts", Err: err}
	}
	return counts.list(), nil
}

// procOpener opens files of /proc/net in the client's network namespace.
type procOpener interface {
	open(name string) (procFile, error)
	close() error
}

type procFile interface {
	io.ReaderAt
	io.Closer
}

const (
	countsFile      = "ip_vs"
	connectionsFile = "ip_vs_conn"

	// maxCountsFile bounds what is read: 60 bytes a real server, so millions.
	maxCountsFile = 512 << 20
)

// countsReader reads the counts. The file stays open between readings.
type countsReader struct {
	proc   procOpener
	lock   chan struct{} // as the client's
	closed bool
	file   procFile
	buf    []byte
	last   int // how many real servers there were
}

func newCountsReader(proc procOpener) countsReader {
	return countsReader{proc: proc, lock: make(chan struct{}, 1), buf: make([]byte, 64<<10)}
}

func (r *countsReader) close() {
	r.lock <- struct{}{}
	defer func() { <-r.lock }()
	r.closed = true
	r.drop()
}

func (r *countsReader) drop() {
	if r.file != nil {
		r.file.Close()
		r.file = nil
	}
}

func (r *countsReader) read(ctx context.Context) (*countsTable, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	select {
	case r.lock <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-r.lock }()
	if r.closed {
		return nil, os.ErrClosed
	}
	text, err := r.text(ctx)
	if err != nil {
		return nil, err
	}
	t := &countsTable{counts: make([]DestinationCounts, 0, r.last)}
	if err := t.parse(text); err != nil {
		return nil, err
	}
	r.last = len(t.counts)
	return t, nil
}

// text returns the file's contents. An open file fails once the module was
// unloaded; the one of a module that was loaded again is another file.
func (r *countsReader) text(ctx context.Context) ([]byte, error) {
	if r.file != nil {
		text, err := r.all(ctx)
		if err == nil || ctx.Err() != nil {
			return text, err
		}
		r.drop()
	}
	f, err := r.proc.open(countsFile)
	if errors.Is(err, os.ErrNotExist) {
		return nil, &kernelError{sentinel: ErrNotAvailable, hint: "is ip_vs loaded?", cause: err}
	}
	if err != nil {
		return nil, err
	}
	r.file = f
	text, err := r.all(ctx)
	if err != nil {
		r.drop()
	}
	return text, err
}

// all reads the file from its start.
func (r *countsReader) all(ctx context.Context) ([]byte, error) {
	n := 0
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		m, err := r.file.ReadAt(r.buf[n:], int64(n))
		n += m
		switch {
		case err == io.EOF:
			return r.buf[:n], nil
		case err != nil:
			return nil, err
		case n < len(r.buf):
		case n >= maxCountsFile:
			return nil, errors.New("/proc/net/ip_vs is too long")
		default:
			r.buf = append(r.buf, make([]byte, len(r.buf))...)
		}
	}
}
