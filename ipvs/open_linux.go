package ipvs

import (
	"context"
)

// Open returns a client of the IPVS table. It fails with ErrNotAvailable if the
// kernel has no IPVS and cannot load it, and with os.ErrPermission where
// CAP_NET_ADMIN is missing only when the first command is sent.
func Open(opts ...Option) (*Client, error) {
	o := options{netns: -1}
	for _, opt := range opts {
		opt(&o)
	}
	ns, err := openNetNS(o.netns)
	if err != nil {
		return nil, &Error{Op: "open", Err: err}
	}
	c := newClient(func() (*link, error) { return dialIn(ns) }, ns)
	if err := c.run(context.Background(), func() error { return nil }); err != nil {
		c.Close()
		return nil, &Error{Op: "open", Err: err}
	}
	return c, nil
}

func dialIn(ns *netNS) (l *link, err error) {
	err = ns.do(func() error {
		l, err = dial()
		return err
	})
	return l, err
}
