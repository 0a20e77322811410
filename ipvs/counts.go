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
// The file can lack services. Up to Linux 7.0 the services of all network
// namespaces are in one hash table. What goes on in the file steps through all
// of them and counts the foreign ones, too, but what takes the file up again
// after each buffer of 4 KiB counts only the namespace's own (ip_vs_info_seq_next
// and ip_vs_info_array in net/netfilter/ipvs/ip_vs_ctl.c; net-next 74455a5b4326
// gave each namespace its table). So where containers use IPVS, each buffer
// skips as many services as it met foreign ones. Nothing in the file tells, so
// the keys of all services are asked for over netlink, which counts alike in
// both places, and those that the file lacks are read over netlink.
//
// It is not a snapshot: the file is made as it is read, and so are the answers.
// A service that somebody adds or deletes meanwhile, in any namespace, can hide
// another for once, if it does so in both; and see Table.
func (c *Client) Counts(ctx context.Context) ([]DestinationCounts, error) {
	t, err := c.counts.read(ctx)
	if err == nil {
		err = c.reader.run(ctx, func() error { return c.reader.complete(ctx, t) })
	}
	if err != nil {
		return nil, &Error{Op: "read counts", Err: err}
	}
	return t.list(), nil
}

// complete adds to t what the kernel has and t lacks.
func (c *Client) complete(ctx context.Context, t *countsTable) error {
	keys, err := c.serviceKeys(ctx)
	if err != nil {
		return err
	}
	var list []DestinationStatus
	for _, k := range t.missing(keys) {
		if list, err = c.destinations(ctx, k, list[:0]); err != nil {
			return err
		}
		t.add(k, list)
	}
	return nil
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
