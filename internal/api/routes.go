package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"unicode/utf8"

	"github.com/lbd-project/lbd/internal/version"
)

// route is one operation of the API. A path has one method.
type route struct {
	method, path string
	// write marks what changes the table; it is logged with its peer.
	write bool
	// serve returns the answer, or stream sends it.
	serve  func(r *http.Request) (any, error)
	stream http.HandlerFunc
}

func (s *Server) routes() []route {
	read := func(path string, serve func(*http.Request) (any, error)) route {
		return route{method: "GET", path: path, serve: serve}
	}
	return []route{
		read("/v1/version", s.version),
		read("/v1/status", s.status),
		read("/v1/services", s.services),
		read("/v1/services/{name}", s.service),
		read("/v1/services/{name}/explain", s.explain),
		{method: "PUT", path: "/v1/services/{name}/servers/{server}/admin", write: true, serve: s.setAdmin},
		{method: "PUT", path: "/v1/servers/{server}/admin", write: true, serve: s.setAdmin},
		read("/v1/table", s.table),
		{method: "GET", path: "/v1/connections", stream: s.streamConnections},
		{method: "GET", path: "/v1/events", stream: s.streamEvents},
		read("/v1/doctor", s.doctor),
		{method: "POST", path: "/v1/check", serve: s.check},
		{method: "POST", path: "/v1/diff", serve: s.diff},
		{method: "POST", path: "/v1/reload", write: true, serve: s.reload},
		{method: "POST", path: "/v1/reconcile", write: true, serve: s.reconcile},
	}
}

func (s *Server) version(*http.Request) (any, error) {
	return Version{Version: version.String(), GoVersion: version.Go()}, nil
}

func (s *Server) status(r *http.Request) (any, error) {
	v, err := s.backend.Status(r.Context())
	return v.fill(), err
}

func (s *Server) services(r *http.Request) (any, error) {
	v, err := s.backend.Services(r.Context())
	return fillServices(v), err
}

func (s *Server) table(r *http.Request) (any, error) {
	v, err := s.backend.Table(r.Context())
	return fillServices(v), err
}

// service finds one by its name, or by its key where it has no name.
func (s *Server) service(r *http.Request) (any, error) {
	services, err := s.backend.Services(r.Context())
	if err != nil {
		return nil, err
	}
	name := r.PathValue("name")
	for _, svc := range services {
		if svc.Name == name || svc.Key == name {
			return svc.fill(), nil
		}
	}
	return nil, fmt.Errorf("virtual service %q: %w", name, ErrNotFound)
}

func (s *Server) explain(r *http.Request) (any, error) {
	v, err := s.backend.Explain(r.Context(), r.PathValue("name"))
	return v.fill(), err
}

func (s *Server) doctor(r *http.Request) (any, error) {
	v, err := s.backend.Doctor(r.Context())
	return v.fill(), err
}

func (s *Server) check(r *http.Request) (any, error) {
	return s.withFile(r, func(f File) (any, error) {
		v, err := s.backend.Check(r.Context(), f)
		return v.fill(), err
	})
}

func (s *Server) diff(r *http.Request) (any, error) {
	return s.withFile(r, func(f File) (any, error) {
		v, err := s.backend.Diff(r.Context(), f)
		return v.fill(), err
	})
}

// withFile reads the file that a request brings and calls f with it. Few run at
// once: to read a file takes many times its size.
func (s *Server) withFile(r *http.Request, f func(File) (any, error)) (any, error) {
	select {
	case s.files <- struct{}{}:
		defer func() { <-s.files }()
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	var file File
	if err := decode(r, &file); err != nil {
		return nil, err
	}
	return f(file)
}

func (s *Server) reload(r *http.Request) (any, error) {
	if err := noBody(r); err != nil {
		return nil, err
	}
	now := false
	err := parseParameters(r.URL.RawQuery, func(name, value string) (err error) {
		if name != "now" {
			return errors.New("unknown parameter; known is now")
		}
		now, err = parseFlag(value)
		return err
	})
	if err != nil {
		return nil, errorf(http.StatusBadRequest, "%w", err)
	}
	reload := s.backend.Reload
	if now {
		reload = s.backend.ReloadNow
	}
	v, err := reload(r.Context())
	return v.fill(), err
}

func (s *Server) reconcile(r *http.Request) (any, error) {
	if err := noBody(r); err != nil {
		return nil, err
	}
	v, err := s.backend.Reconcile(r.Context())
	return v.fill(), err
}

// decode reads the whole body into v and accepts nothing that v has no place
// for.
func decode(r *http.Request, v any) error {
	if t, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); t != "application/json" {
		return errorf(http.StatusUnsupportedMediaType, "the body must have Content-Type: application/json")
	}
	body, err := readBody(r)
	if err != nil {
		return err
	}
	// The decoder would replace what is not UTF-8, and something else than what
	// was sent would be judged.
	if !utf8.Valid(body) {
		return errorf(http.StatusBadRequest, "the body is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return errorf(http.StatusBadRequest, "decode the body: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return errorf(http.StatusBadRequest, "decode the body: something follows the JSON value")
	}
	return nil
}

// noBody refuses a body where nothing would read it.
func noBody(r *http.Request) error {
	switch n, err := io.ReadFull(r.Body, make([]byte, 1)); {
	case n > 0:
		return errorf(http.StatusBadRequest, "%s takes no body", r.URL.Path)
	case err != io.EOF:
		return errorf(http.StatusBadRequest, "read the body: %w", err)
	}
	return nil
}

func readBody(r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(r.Body)
	var tooBig *http.MaxBytesError
	switch {
	case errors.As(err, &tooBig):
		return nil, errorf(http.StatusRequestEntityTooLarge, "the body is larger than %d bytes", tooBig.Limit)
	case err != nil:
		return nil, errorf(http.StatusBadRequest, "read the body: %w", err)
	}
	return body, nil
}
