package ipvs

import (
	"context"

	"github.com/lbd-project/lbd/internal/netns"
)

// Open returns a client of the IPVS table. It fails with ErrNotAvailable if the
// kernel has no IPVS and cannot load it, and with os.ErrPermission where
// CAP_NET_ADMIN is missing only when the first command is sent.
func Open(opts ...Option) (*Client, error) {
	o := options{netns: -1}
	for _, opt := range opts {
		opt(&o)
	}
	ns, err := netns.Open(o.netns)
	if err != nil {
		return nil, &Error{Op: "open", Err: err}
	}
	c := newClient(func() (*link, error) { return dialIn(ns) }, netNS{ns})
	if err := c.run(context.Background(), func() error { return nil }); err != nil {
		c.Close()
		return nil, &Error{Op: "open", Err: err}
	}
	return c, nil
}

func dialIn(ns *netns.NS) (l *link, err error) {
	err = ns.Do(func() error {
		l, err = dial()
		return err
	})
	return l, err
}
