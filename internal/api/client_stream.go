package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"time"
)

// maxLine bounds a line of a stream.
const maxLine = 64 << 10

// Connections streams the connections of lbd's engine, in no order. An error
// ends it; it matches ErrNotFound if there is no such service. The timeout bounds
// each wait for lbd. Whoever takes no connection for half a minute is cut off.
func (c *Client) Connections(ctx context.Context, q ConnectionQuery) iter.Seq2[Connection, error] {
	return func(yield func(Connection, error) bool) {
		if err := c.stream(ctx, "/v1/connections?"+q.values().Encode(), func(line []byte) (bool, error) {
			var l struct {
				Connection
				Error string `json:"error"`
			}
			if err := unmarshalLine(line, &l); err != nil {
				return false, err
			}
			if l.Error != "" {
				return false, errors.New(l.Error)
			}
			if c.OnAnswer != nil {
				c.OnAnswer(line)
			}
			return yield(l.Connection, nil), nil
		}); err != nil {
			yield(Connection{}, err)
		}
	}
}

func unmarshalLine(line []byte, v any) error {
	if err := json.Unmarshal(line, v); err != nil {
		return fmt.Errorf("a line is not lbd's: %w", err)
	}
	return nil
}

// stream calls visit with each line of an answer until it returns false or an
// error.
func (c *Client) stream(ctx context.Context, path string, visit func(line []byte) (bool, error)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	wait := &patience{limit: c.timeout, expire: func() { cancel(context.DeadlineExceeded) }}
	defer wait.stop()
	unreachable := func(err error) error {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return c.unreachable(err)
	}
	req, err := http.NewRequestWithContext(ctx, "GET", "http://lbd"+path, nil)
	if err != nil {
		return err
	}
	wait.start()
	resp, err := c.http.Do(req)
	if err != nil {
		return unreachable(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		_, err := c.readAnswer(resp)
		return err
	}
	lines := bufio.NewReaderSize(resp.Body, maxLine)
	for {
		wait.start()
		line, err := lines.ReadSlice('\n')
		wait.stop() // the caller may take its time
		switch {
		case err == io.EOF && len(line) == 0:
			return nil
		case errors.Is(err, bufio.ErrBufferFull):
			return errors.New("a line is too long to be lbd's")
		case err == io.EOF, errors.Is(err, io.ErrUnexpectedEOF):
			return errors.New("lbd ended the list before its end; it stops, or this reader was too slow")
		case err != nil:
			return unreachable(err)
		}
		if more, err := visit(line); !more || err != nil {
			return err
		}
	}
}

// patience calls expire when a wait takes longer than limit; 0 is for ever.
type patience struct {
	limit  time.Duration
	expire func()
	timer  *time.Timer
}

func (p *patience) start() {
	switch {
	case p.limit <= 0:
	case p.timer == nil:
		p.timer = time.AfterFunc(p.limit, p.expire)
	default:
		p.timer.Reset(p.limit)
	}
}

func (p *patience) stop() {
	if p.timer != nil {
		p.timer.Stop()
	}
}
