package ipvs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
)

// Apply executes ops in order, in as few sends as possible: the kernel is given
// up to a thousand requests at once and answers only those that fail, and the
// last.
//
// A *BatchError names the operations that failed; all others took effect. An
// operation that Validate refuses is among the failed and is not sent. After any
// other error (an *Error) an unknown part of ops took effect, and the caller has
// to read the table to know.
func (c *Client) Apply(ctx context.Context, ops []Op) error {
	if len(ops) == 0 {
		return nil
	}
	var failed []FailedOp
	for i := range ops {
		if err := ops[i].Validate(); err != nil {
			failed = append(failed, ops[i].failure(i, err))
		}
	}
	if len(failed) < len(ops) {
		refused := failed
		err := c.run(ctx, func() error {
			answered, err := c.apply(ctx, ops, refused)
			failed = append(failed, answered...)
			return err
		})
		if err != nil {
			return &Error{Op: "apply", Err: err}
		}
	}
	if len(failed) == 0 {
		return nil
	}
	slices.SortFunc(failed, func(a, b FailedOp) int { return cmp.Compare(a.Index, b.Index) })
	return &BatchError{Failed: failed}
}

// failure names the operation that failed.
func (op *Op) failure(index int, err error) FailedOp {
	e := &Error{Op: op.Kind.String(), Service: op.Service.ServiceKey, Err: err}
	switch op.Kind {
	case OpAddDestination, OpUpdateDestination, OpDeleteDestination:
		e.Destination = op.Destination.Address
	}
	return FailedOp{Index: index, Err: e}
}

// explain names what the kernel did not find, which may be the persistence
// engine as well.
func (op *Op) explain(err error) error {
	e, ok := errors.AsType[*kernelError](err)
	if !ok || e.sentinel != ErrSchedulerNotFound {
		return err
	}
	e.hint = fmt.Sprintf("%s; is there a module ip_vs_%[1]s?", op.Service.Scheduler)
	if engine := op.Service.Persistence.Engine; engine != "" {
		e.hint = fmt.Sprintf("%s, or persistence engine %s", op.Service.Scheduler, engine)
	}
	return err
}

// apply sends all ops but the refused, batch by batch.
func (c *Client) apply(ctx context.Context, ops []Op, refused []FailedOp) (failed []FailedOp, err error) {
	moved := false
	for next := 0; next < len(ops); {
		begin, skip := next, refused
		next, refused = c.encodeBatch(ops, next, refused)
		if len(c.index) == 0 {
			break
		}
		answered, err := c.sendBatch(ctx, ops)
		if err != nil {
			return nil, err
		}
		// Where the family has got another number, netlink refuses all of the
		// batch, and nothing of it is done.
		if !moved && slices.ContainsFunc(answered, func(f FailedOp) bool { return isKernelErrno(f.Err, syscall.ENOENT) }) {
			m, err := c.familyMoved()
			switch {
			case err != nil:
				return nil, err
			case m && len(answered) == len(c.index):
				moved, next, refused = true, begin, skip
				continue
			case m:
				return nil, errMoved
			}
		}
		failed = append(failed, answered...)
	}
	return failed, nil
}

var errMoved = errors.New("ip_vs was loaded again in the middle of a batch")

// maxUpdates is how many updates of services one send has at most: one that
// changes the scheduler waits 17 ms for the processors (synchronize_rcu), and a
// send cannot be interrupted.
const maxUpdates = 50

// encodeBatch puts as many of the operations from next on into wbuf as one send
// takes, and returns the next one and what is left of the refused.
func (c *Client) encodeBatch(ops []Op, next int, refused []FailedOp) (int, []FailedOp) {
	c.wbuf, c.index = c.wbuf[:0], c.index[:0]
	last := 0 // where the last message begins
	updates := 0
	for ; next < len(ops) && len(c.index) < c.link.maxOps && updates < maxUpdates; next++ {
		if len(refused) > 0 && refused[0].Index == next {
			refused = refused[1:]
			continue
		}
		start := len(c.wbuf)
		c.wbuf = appendOp(c.wbuf, c.link.family, 0, c.link.seq+1, &ops[next])
		if len(c.wbuf) > c.link.maxBytes && start > 0 {
			c.wbuf = c.wbuf[:start]
			break
		}
		if ops[next].Kind == OpUpdateService {
			updates++
		}
		last = start
		c.link.seq++
		c.index = append(c.index, next)
	}
	if len(c.wbuf) > 0 {
		setFlags(c.wbuf[last:], flagRequest|flagAck)
	}
	return next, refused
}

// sendBatch sends the batch in wbuf and collects the failures until the answer
// to the last request.
func (c *Client) sendBatch(ctx context.Context, ops []Op) (failed []FailedOp, err error) {
	n := uint32(len(c.index))
	first := c.link.seq - n + 1
	if err := c.link.conn.send(c.wbuf); err != nil {
		return nil, err
	}
	err = c.receive(ctx, func(m *message) (bool, error) {
		i := m.seq - first // wraps around as the numbers do
		if i >= n {
			return false, errUnexpected
		}
		if m.typ != nlmsgError {
			return false, errUnknownType
		}
		ans, err := decodeAnswer(m.flags, m.payload)
		if err != nil {
			return false, err
		}
		if ans.errno != 0 {
			op := &ops[c.index[i]]
			failed = append(failed, op.failure(c.index[i], op.explain(ans.error(op.Kind.command()))))
		} else if i != n-1 {
			return false, errUnexpected // only the last asks for an ACK
		}
		return i == n-1, nil
	})
	if err != nil {
		return nil, err
	}
	return failed, nil
}

// one executes one operation and returns its error.
func (c *Client) one(ctx context.Context, op Op) error {
	err := c.Apply(ctx, []Op{op})
	if b, ok := errors.AsType[*BatchError](err); ok {
		return b.Failed[0].Err
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return op.failure(0, e.Err).Err
	}
	return err
}

// AddService creates a virtual service. It fails with ErrServiceExists or
// ErrSchedulerNotFound.
func (c *Client) AddService(ctx context.Context, s Service) error {
	return c.one(ctx, Op{Kind: OpAddService, Service: s})
}

// UpdateService replaces every attribute of a virtual service; there is no
// partial update. Established connections are kept. It fails with
// ErrServiceNotFound or ErrSchedulerNotFound.
func (c *Client) UpdateService(ctx context.Context, s Service) error {
	return c.one(ctx, Op{Kind: OpUpdateService, Service: s})
}

// DeleteService deletes a virtual service with its real servers. It fails with
// ErrServiceNotFound.
func (c *Client) DeleteService(ctx context.Context, k ServiceKey) error {
	return c.one(ctx, Op{Kind: OpDeleteService, Service: Service{ServiceKey: k}})
}

// AddDestination adds a real server at the head of its service's list. It fails
// with ErrDestinationExists or ErrServiceNotFound.
func (c *Client) AddDestination(ctx context.Context, k ServiceKey, d Destination) error {
	return c.one(ctx, Op{Kind: OpAddDestination, Service: Service{ServiceKey: k}, Destination: d})
}

// UpdateDestination replaces every attribute of a real server, in its place in
// the list; there is no partial update. Established connections are kept. It
// fails with ErrDestinationNotFound or ErrServiceNotFound.
func (c *Client) UpdateDestination(ctx context.Context, k ServiceKey, d Destination) error {
	return c.one(ctx, Op{Kind: OpUpdateDestination, Service: Service{ServiceKey: k}, Destination: d})
}

// DeleteDestination removes a real server. Packets of its established
// connections are dropped, or answered with a reset where
// net.ipv4.vs.expire_nodest_conn is set. It fails with ErrDestinationNotFound or
// ErrServiceNotFound.
func (c *Client) DeleteDestination(ctx context.Context, k DestinationKey) error {
	return c.one(ctx, Op{Kind: OpDeleteDestination, Service: Service{ServiceKey: k.Service},
		Destination: Destination{Address: k.Address}})
}

// SetWeight changes the weight of a real server. The kernel has no request for
// that: the real server is read and written back with the new weight, and a
// change that somebody else makes between the two is lost. It fails with
// ErrDestinationNotFound or ErrServiceNotFound.
func (c *Client) SetWeight(ctx context.Context, k DestinationKey, weight uint32) error {
	fail := func(err error) error {
		return &Error{Op: "set weight", Service: k.Service, Destination: k.Address, Err: err}
	}
	list, err := c.Destinations(ctx, k.Service)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(list, func(d DestinationStatus) bool { return d.Address == k.Address })
	if i < 0 {
		if _, err := c.Service(ctx, k.Service); err != nil {
			return err
		}
		return fail(ErrDestinationNotFound)
	}
	d := list[i].Destination
	d.Weight = weight
	if err := c.UpdateDestination(ctx, k.Service, d); err != nil {
		if e, ok := errors.AsType[*Error](err); ok {
			return fail(e.Err)
		}
		return fail(err)
	}
	return nil
}
