package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// httpError is an error with the status of the answer.
type httpError struct {
	code int
	err  error
}

func (e *httpError) Error() string { return e.err.Error() }
func (e *httpError) Unwrap() error { return e.err }

func errorf(code int, format string, args ...any) error {
	return &httpError{code, fmt.Errorf(format, args...)}
}

// handler returns the whole API: every answer in JSON, from known peers only,
// with panics contained.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	allowed := map[string]string{}
	for _, rt := range s.routes() {
		h := rt.stream
		if h == nil {
			h = s.answer(rt)
		}
		mux.Handle(rt.method+" "+rt.path, h)
		allowed[rt.path] = rt.method
	}
	for p, method := range allowed {
		mux.HandleFunc(p, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Allow", method)
			s.writeError(w, errorf(http.StatusMethodNotAllowed, "%s takes %s, not %s", r.URL.Path, method, r.Method))
		})
	}
	mux.HandleFunc("/", s.notFound)
	return s.contain(s.authorize(s.requirePlainPath(mux)))
}

func (s *Server) notFound(w http.ResponseWriter, r *http.Request) {
	s.writeError(w, errorf(http.StatusNotFound, "no such resource: %s", r.URL.Path))
}

// requirePlainPath lets through what next answers by its patterns alone. Of
// another path, such as //v1/status or that of OPTIONS *, a ServeMux makes a
// redirect or an error of its own, which is not JSON.
func (s *Server) requirePlainPath(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := r.URL.EscapedPath()
		if !strings.HasPrefix(p, "/") || path.Clean(p) != p {
			s.notFound(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// answer runs one route and writes what it returns.
func (s *Server) answer(rt route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if rt.write {
			peer, _ := peerFrom(r.Context())
			s.log.Info("control request", "request", rt.method+" "+rt.path, "uid", peer.UID, "pid", peer.PID)
		}
		ctx, cancel := context.WithTimeout(r.Context(), s.limits.handle)
		defer cancel()
		r = r.WithContext(ctx)
		r.Body = http.MaxBytesReader(w, r.Body, s.limits.body)
		v, err := rt.serve(r)
		if err != nil {
			s.writeError(w, err)
			return
		}
		s.write(w, http.StatusOK, v)
	}
}

// authorize lets allowed peers through.
func (s *Server) authorize(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peer, ok := peerFrom(r.Context())
		switch {
		case !ok:
			s.writeError(w, errorf(http.StatusForbidden, "the peer of this connection is unknown"))
		case !s.allow(peer):
			s.log.Warn("control request refused", "uid", peer.UID, "pid", peer.PID)
			s.writeError(w, errorf(http.StatusForbidden, "%v may not use this socket", peer))
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// contain turns a panic into an answer: a bug in one request must not end the
// daemon, nor look to the client like a daemon that has ended.
func (s *Server) contain(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if p := recover(); p != nil {
				s.log.Error("control request panicked", "request", r.Method+" "+r.URL.Path,
					"err", fmt.Sprint(p), "stack", string(debug.Stack()))
				s.writeError(w, errorf(http.StatusInternalServerError, "internal error: %v", p))
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// write sends v. The answer is complete in memory before its first byte goes
// out, so that a status is never taken back.
func (s *Server) write(w http.ResponseWriter, code int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		s.log.Error("control answer not encoded", "err", err)
		code, body = http.StatusInternalServerError, []byte(`{"error":"the answer cannot be encoded"}`)
	}
	body = append(body, '\n')
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(code)
	if _, err := w.Write(body); err != nil {
		s.log.Debug("control answer not sent", "err", err)
	}
}

func (s *Server) writeError(w http.ResponseWriter, err error) {
	s.write(w, statusOf(err), Error{Error: err.Error()})
}

// statusOf maps an error to the status of its answer.
func statusOf(err error) int {
	var he *httpError
	switch {
	case errors.As(err, &he):
		return he.code
	case errors.Is(err, ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, ErrUnavailable), errors.Is(err, context.Canceled):
		return http.StatusServiceUnavailable
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusGatewayTimeout
	default:
		return http.StatusInternalServerError
	}
}
