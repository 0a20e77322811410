package smtpcheck

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/healthcheck/stream"
)

// patience is how long a server that failed the check has for its answer to QUIT.
const patience = 200 * time.Millisecond

// Check implements healthcheck.Checker.
func (c *checker) Check(ctx context.Context) (healthcheck.Result, error) {
	begun := time.Now()
	conn, err := stream.Dial(ctx, c.check.Via, c.env, c.target)
	if err != nil {
		return healthcheck.Result{Latency: time.Since(begun)}, err
	}
	s := &session{conn: conn, in: bufio.NewReaderSize(conn, maxLine)}
	r, err := c.talk(ctx, s)
	r.Latency = time.Since(begun)
	if err != nil {
		r.Detail = ""
		if s.open {
			conn.SetDeadline(time.Now().Add(stream.Share(ctx, patience)))
			s.quit()
		}
	}
	if s.left {
		conn.Hangup(ctx)
	}
	if end := conn.Finish(ctx); err == nil {
		err = end
	}
	return r, err
}

// talk has the whole conversation with a server that behaves.
func (c *checker) talk(ctx context.Context, s *session) (r healthcheck.Result, err error) {
	secure := func() error {
		state, err := s.secure(ctx, c.config)
		if err == nil {
			r.Warning = c.check.TLS.Warning(state, time.Now())
		}
		return err
	}
	if c.config != nil && !c.check.StartTLS {
		if err := secure(); err != nil {
			return r, err
		}
	}
	greeting, err := s.reply("greeting", 220)
	if err != nil {
		return r, err
	}
	r.Detail = greeting.String()
	extensions, err := c.hello(s)
	if err != nil {
		return r, err
	}
	if c.check.StartTLS {
		if !extensions.offers("STARTTLS") {
			return r, errors.New("EHLO: the server does not offer STARTTLS")
		}
		if _, err := s.command("STARTTLS", 220); err != nil {
			return r, err
		}
		if err := secure(); err != nil {
			return r, err
		}
		if _, err := c.hello(s); err != nil {
			return r, err
		}
	}
	return r, s.quit()
}

// hello introduces the probe. The reply to EHLO has the server's extensions.
func (c *checker) hello(s *session) (reply, error) {
	r, err := s.command("EHLO "+c.name, 250)
	var e *unexpectedError
	if errors.As(err, &e) && e.got.code >= 500 && e.got.code <= 504 && !c.check.StartTLS {
		// RFC 5321, section 3.2: it does not know EHLO.
		return s.command("HELO "+c.name, 250)
	}
	return r, err
}

// session is a conversation.
type session struct {
	conn *stream.Conn
	in   *bufio.Reader
	// open is while the server waits for a command, left once it has accepted
	// QUIT.
	open, left bool
}

// unexpectedError is a reply with another code than asked for.
type unexpectedError struct {
	to   string
	want int
	got  reply
}

func (e *unexpectedError) Error() string {
	return fmt.Sprintf("%s: want %d, got %q", e.to, e.want, e.got)
}

// command sends a line and returns the reply, which must have the code.
func (s *session) command(line string, code int) (reply, error) {
	s.open = false
	if _, err := s.conn.Write([]byte(line + "\r\n")); err != nil {
		return reply{}, fmt.Errorf("%s: send: %w", line, stream.Explain(err))
	}
	return s.reply(line, code)
}

// reply returns the reply to what has been sent, which must have the code.
func (s *session) reply(to string, code int) (reply, error) {
	r, err := readReply(s.in)
	if err != nil {
		return reply{}, fmt.Errorf("%s: %w", to, stream.Explain(err))
	}
	s.open = true
	if r.code != code {
		return r, &unexpectedError{to: to, want: code, got: r}
	}
	return r, nil
}

// quit takes leave.
func (s *session) quit() error {
	_, err := s.command("QUIT", 221)
	s.open, s.left = false, err == nil
	return err
}

// secure goes over to TLS.
func (s *session) secure(ctx context.Context, config *tls.Config) (tls.ConnectionState, error) {
	s.open = false
	if n := s.in.Buffered(); n > 0 {
		// Taken for a part of what is encrypted, it would be anybody's words.
		early, _ := s.in.Peek(n)
		return tls.ConnectionState{}, fmt.Errorf("the server goes on in the clear after STARTTLS: %q", show(early))
	}
	return s.conn.StartTLS(ctx, config)
}
