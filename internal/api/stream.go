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
	"strconv"
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
	err = parseParameters(raw, func(name, value string) (err error) {
		switch name {
		case "service":
			q.Service = value
		case "client":
			err = q.Client.UnmarshalText([]byte(value))
		case "server":
			err = q.Server.UnmarshalText([]byte(value))
		case "state":
			err = q.State.UnmarshalText([]byte(value))
		default:
			err = errors.New("unknown parameter; known are service, client, server and state")
		}
		return err
	})
	return q, err
}

// parseParameters gives set each parameter of a query. None may come twice.
func parseParameters(raw string, set func(name, value string) error) error {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return fmt.Errorf("parameters: %w", err)
	}
	for name, v := range values {
		if len(v) != 1 {
			return fmt.Errorf("%s: given %d times", name, len(v))
		}
		if err := set(name, v[0]); err != nil {
			return fmt.Errorf("%s: %q: %w", name, v[0], err)
		}
	}
	return nil
}

// parseFlag reads a parameter that is on where it has no value, as in "?follow".
func parseFlag(value string) (bool, error) {
	if value == "" {
		return true, nil
	}
	return strconv.ParseBool(value)
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

// streamConnections answers with a line a connection. What a slow client has not
// taken waits in memory, to a limit, so that the engine is read at its own speed
// and not the client's where it can be. A client that takes nothing for a while,
// or goes, ends the stream; few run at once.
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
	out := newLineWriter(w, s.limits.ahead, s.limits.stall)
	if err := s.sendLines(ctx, out, conns); err != nil {
		s.writeError(w, err)
	}
}

// sendLines sends connections until the last, or until the client takes no more.
// The error is one with which nothing was sent.
func (s *Server) sendLines(ctx context.Context, out *lineWriter, conns iter.Seq2[Connection, error]) error {
	defer func() {
		if err := out.close(); err != nil {
			s.log.Debug("control answer not sent", "err", err)
		}
	}()
	for c, err := range conns {
		if err != nil {
			err = s.whyEnded(ctx, err)
			if !out.begun {
				return err
			}
			out.line(Error{Error: err.Error()})
			return nil
		}
		if out.line(c) != nil {
			return nil
		}
	}
	out.begun = true // also without a line
	return nil
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

// lineWriter sends JSON values, each on a line, many at once, in a goroutine of
// its own.
type lineWriter struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	ahead int
	stall time.Duration
	buf   bytes.Buffer
	// begun says that the answer has begun: its status is 200.
	begun bool
	// cut is when buf was last handed over.
	cut time.Time

	// chunks wait to be sent; nil before the first. done is closed when no more is
	// sent: for err, or because all was.
	chunks chan []byte
	done   chan struct{}
	err    error
}

// newLineWriter returns a writer that must be closed. About ahead bytes wait at
// most, and the client may take nothing for stall.
func newLineWriter(w http.ResponseWriter, ahead int, stall time.Duration) *lineWriter {
	return &lineWriter{
		w: w, rc: http.NewResponseController(w), ahead: ahead, stall: stall, cut: time.Now(), done: make(chan struct{}),
	}
}

// run sends chunks.
func (l *lineWriter) run() {
	defer close(l.done)
	for b := range l.chunks {
		if l.err = l.send(b); l.err != nil {
			return
		}
	}
}

// line adds a line. It waits while too much waits for the client, and fails when
// that takes no more.
func (l *lineWriter) line(v any) error {
	l.begun = true
	if err := json.NewEncoder(&l.buf).Encode(v); err != nil {
		return err
	}
	if l.buf.Len() < chunk && time.Since(l.cut) < chunkDelay {
		return nil
	}
	return l.handOver()
}

func (l *lineWriter) handOver() error {
	b := bytes.Clone(l.buf.Bytes())
	l.buf.Reset()
	l.cut = time.Now()
	if l.chunks == nil {
		l.chunks = make(chan []byte, l.ahead/chunk)
		go l.run()
	}
	select {
	case l.chunks <- b:
		return nil
	case <-l.done:
		return l.err
	}
}

// close sends what waits and returns when that is done. An answer that has not
// begun can still become another.
func (l *lineWriter) close() error {
	if !l.begun {
		return nil
	}
	l.handOver() // also of nothing, for the status
	close(l.chunks)
	<-l.done
	return l.err
}

// send waits for a slow client, to a limit.
func (l *lineWriter) send(b []byte) error {
	if err := l.rc.SetWriteDeadline(time.Now().Add(l.stall)); err != nil {
		return err
	}
	l.w.Header().Set("Content-Type", linesType)
	_, err := l.w.Write(b)
	return errors.Join(err, l.rc.Flush())
}
