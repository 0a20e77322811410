package ipvs

import "context"

// write sends the one request in wbuf, whose flags ask for an ACK, and waits for
// it.
func (c *Client) write(ctx context.Context, cmd uint8, seq uint32) error {
	if err := c.link.conn.send(c.wbuf); err != nil {
		return err
	}
	var kernel error
	err := c.receive(ctx, func(m *message) (bool, error) {
		if m.seq != seq {
			return false, errUnexpected
		}
		if m.typ != nlmsgError {
			return false, errUnknownType
		}
		ans, err := decodeAnswer(m.flags, m.payload)
		if err == nil && ans.errno != 0 {
			kernel = ans.error(cmd)
		}
		return true, err
	})
	if err != nil {
		return err
	}
	return kernel
}

// request sends a request with attributes and waits for its ACK.
func (c *Client) request(ctx context.Context, cmd uint8, appendAttrs func(b []byte) []byte) error {
	seq := c.begin(cmd, flagRequest|flagAck, appendAttrs)
	return c.write(ctx, cmd, seq)
}

// begin puts one request into wbuf and returns its sequence number.
func (c *Client) begin(cmd uint8, flags uint16, appendAttrs func(b []byte) []byte) uint32 {
	seq := c.link.nextSeq(1)
	c.wbuf = beginMessage(c.wbuf[:0], c.link.family, flags, seq, cmd)
	if appendAttrs != nil {
		c.wbuf = appendAttrs(c.wbuf)
	}
	endMessage(c.wbuf, 0)
	return seq
}

// get sends a request whose answer is one message of the command reply, and
// calls decode with its attributes. It does not ask for an ACK: that would come
// after the answer and be taken for the next one.
func (c *Client) get(ctx context.Context, cmd, reply uint8, appendAttrs func(b []byte) []byte, decode func(attrs []byte) error) error {
	seq := c.begin(cmd, flagRequest, appendAttrs)
	if err := c.link.conn.send(c.wbuf); err != nil {
		return err
	}
	var kernel error
	err := c.receive(ctx, func(m *message) (bool, error) {
		if m.seq != seq {
			return false, errUnexpected
		}
		if m.typ == nlmsgError {
			ans, err := decodeAnswer(m.flags, m.payload)
			if err == nil && ans.errno == 0 {
				err = errUnexpected
			}
			if err == nil {
				kernel = ans.error(cmd)
			}
			return true, err
		}
		b, err := m.body(c.link.family, reply)
		if err != nil {
			return false, err
		}
		return true, decode(b)
	})
	if err != nil {
		return err
	}
	return kernel
}

// dump asks for all objects of a kind and calls decode with the attributes of
// each. After errInterrupted what was decoded is worth nothing.
func (c *Client) dump(ctx context.Context, cmd, reply uint8, appendAttrs func(b []byte) []byte, decode func(attrs []byte) error) error {
	seq := c.begin(cmd, flagRequest|flagDump, appendAttrs)
	c.datagrams = 0
	if err := c.link.conn.send(c.wbuf); err != nil {
		return err
	}
	var kernel error
	interrupted := false
	err := c.receive(ctx, func(m *message) (bool, error) {
		if m.seq != seq {
			return false, errUnexpected
		}
		interrupted = interrupted || m.flags&flagDumpIntr != 0
		switch m.typ {
		case nlmsgError, nlmsgDone:
			var ans answer
			var err error
			if m.typ == nlmsgError {
				ans, err = decodeAnswer(m.flags, m.payload)
			} else {
				ans, err = decodeErrno(m.payload)
			}
			switch {
			case err != nil:
			case ans.errno != 0:
				kernel = ans.error(cmd)
			case m.typ == nlmsgError:
				err = errUnexpected
			}
			return true, err
		}
		b, err := m.body(c.link.family, reply)
		if err != nil {
			return false, err
		}
		return false, decode(b)
	})
	switch {
	case err != nil:
		return err
	case kernel != nil:
		return kernel
	case interrupted:
		return errInterrupted
	}
	return nil
}

// dumpWhole repeats a dump that was interrupted. reset throws away what the
// attempt before has decoded.
func (c *Client) dumpWhole(ctx context.Context, cmd, reply uint8, appendAttrs func(b []byte) []byte, reset func(), decode func(attrs []byte) error) error {
	for range maxDumps {
		reset()
		err := c.dump(ctx, cmd, reply, appendAttrs, decode)
		if err != errInterrupted {
			return err
		}
	}
	return errInterrupted
}
