package tcpcheck

import (
	"context"
	"fmt"
	"time"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/healthcheck/stream"
)

// Check implements healthcheck.Checker.
func (c *checker) Check(ctx context.Context) (healthcheck.Result, error) {
	begun := time.Now()
	r, conn, err := c.run(ctx)
	r.Latency = time.Since(begun)
	if conn != nil {
		if end := conn.Finish(ctx); err == nil {
			err = end
		}
	}
	if err != nil {
		return healthcheck.Result{Latency: r.Latency, Warning: r.Warning}, err
	}
	return r, nil
}

// run does everything but closing the connection that it returns.
func (c *checker) run(ctx context.Context) (r healthcheck.Result, conn *stream.Conn, err error) {
	conn, err = stream.Dial(ctx, c.via, c.env, c.target)
	if err != nil {
		return r, nil, err
	}
	r.Detail = "connected"
	if c.config != nil {
		state, err := conn.StartTLS(ctx, c.config)
		if err != nil {
			return r, conn, err
		}
		r.Detail = "TLS handshake done"
		r.Warning = c.options.Warning(state, time.Now())
	}
	for _, round := range c.rounds {
		if err := round.play(ctx, conn); err != nil {
			return r, conn, err
		}
	}
	switch {
	case c.steps == 1:
		r.Detail = "1 step passed"
	case c.steps > 1:
		r.Detail = fmt.Sprintf("%d steps passed", c.steps)
	}
	return r, conn, nil
}

// play sends and waits for the answer.
func (r *round) play(ctx context.Context, conn *stream.Conn) error {
	if len(r.send) > 0 {
		if _, err := conn.Write(r.send); err != nil {
			return fmt.Errorf("step %d: send: %w", r.step, stream.Explain(err))
		}
	}
	if len(r.wants) == 0 {
		return nil
	}
	a := answer{wants: r.wants}
	var end error
	for {
		if done, err := a.judge(end); done {
			return err
		}
		end = a.read(ctx, conn)
	}
}
