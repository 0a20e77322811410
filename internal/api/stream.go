package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// linesType is the content type of an answer that is a JSON value a line.
const linesType = "application/x-ndjson"

// A stream's lines go out when there are chunk bytes of them, or after
// chunkDelay.
const (
	chunk      = 32 << 10
	chunkDelay = 200 * time.Millisecond
)

// connections reads the query and asks for the connections.
func (s *Server) connections(r *http.Request) (iter.Seq2[Connection, error], error) {
	q, err := parseConnectionQuery(r.URL.RawQuery)
	if err != nil {
		return nil, errorf(http.StatusBadRequest, "%w", err)
	}
	return s.backend.Connections(r.Context(), q)
}

// parseConnectionQuery accepts each parameter once, and no other.
func parseConnectionQuery(raw string) (q ConnectionQuery, err error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return q, fmt.Errorf("parameters: %w", err)
	}
	for name, v := range values {
		if len(v) != 1 {
			return q, fmt.Errorf("%s: given %d times", name, len(v))
		}
		switch name {
		case "service":
			q.Service = v[0]
		case "client":
			err = q.Client.UnmarshalText([]byte(v[0]))
		case "server":
			err = q.Server.UnmarshalText([]byte(v[0]))
		case "state":
			err = q.State.UnmarshalText([]byte(v[0]))
		default:
			err = errors.New("unknown parameter; known are service, client, server and state")
		}
		if err != nil {
			return q, fmt.Errorf("%s: %q: %w", name, v[0], err)
		}
	}
	return q, nil
}

// values is the inverse of parseConnectionQuery.
func (q ConnectionQuery) values() url.Values {
	v := url.Values{}
	for name, text := range map[string]string{
		"service": q.Service, "client": q.Client.String(), "server": q.Server.String(), "state": string(q.State),
	} {
		if text != "" {
			v.Set(name, text)
		}
	}
	return v
}

// streamConnections answers with a line a connection. Few streams run at once,
// and a client that takes nothing for a while, or goes, ends its own: it holds
// up nothing but that, and little memory.
func (s *Server) streamConnections(w http.ResponseWriter, r *http.Request) {
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		s.writeError(w, fmt.Errorf("%w: %d others are reading the connections", ErrUnavailable, cap(s.streams)))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.limits.stream)
	defer cancel()
	conns, err := s.connections(r.WithContext(ctx))
	if err != nil {
		s.writeError(w, err)
		return
	}
	out := &lineWriter{w: w, rc: http.NewResponseController(w), stall: s.limits.stall, sent: time.Now()}
	for c, err := range conns {
		err = s.whyEnded(ctx, err)
		if err != nil && !out.begun {
			s.writeError(w, err)
			return
		}
		if err != nil {
			err = out.line(Error{Error: err.Error()})
		} else {
			err = out.line(c)
		}
		if err != nil {
			s.log.Debug("control answer not sent", "err", err)
			return
		}
	}
	if err := out.flush(); err != nil {
		s.log.Debug("control answer not sent", "err", err)
	}
}

// whyEnded says why reading failed if the end of ctx is the reason.
func (s *Server) whyEnded(ctx context.Context, err error) error {
	switch {
	case err == nil || ctx.Err() == nil:
		return err
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("the connections were not read within %v: %w", s.limits.stream, err)
	}
	return fmt.Errorf("%w: lbd is stopping", ErrUnavailable)
}

// lineWriter sends JSON values, each on a line, many at once.
type lineWriter struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	stall time.Duration
	buf   bytes.Buffer
	// begun says that a line was written: the status is 200.
	begun bool
	sent  time.Time
}

func (l *lineWriter) line(v any) error {
	l.begun = true
	if err := json.NewEncoder(&l.buf).Encode(v); err != nil {
		return err
	}
	if l.buf.Len() < chunk && time.Since(l.sent) < chunkDelay {
		return nil
	}
	return l.flush()
}

// flush sends what there is. It waits for a slow client, to a limit.
func (l *lineWriter) flush() error {
	if err := l.rc.SetWriteDeadline(time.Now().Add(l.stall)); err != nil {
		return err
	}
	l.w.Header().Set("Content-Type", linesType)
	_, err := l.w.Write(l.buf.Bytes())
	l.buf.Reset()
	l.sent = time.Now()
	return errors.Join(err, l.rc.Flush())
}
