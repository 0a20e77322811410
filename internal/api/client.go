package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"
)

// maxAnswer bounds what a client reads: 100,000 real servers need about 60 MB.
const maxAnswer = 256 << 20

// Client talks to a running lbd. It is safe for concurrent use; its fields must
// be set before the first call.
//
// When lbd cannot be reached, the error says why and what to do, and matches
// ErrNotRunning where nobody listens, fs.ErrPermission where the socket is
// closed to the caller, and context.DeadlineExceeded after the timeout. When it
// answers with an error, that is a *StatusError.
type Client struct {
	// OnAnswer, if set, gets the body of every answer with status 200 as it came,
	// of a stream each line.
	OnAnswer func(body []byte)

	socket  string
	timeout time.Duration
	http    http.Client
}

// NewClient returns a client of the lbd that listens on the socket. timeout
// bounds each call; 0 leaves it to the call's context.
func NewClient(socket string, timeout time.Duration) *Client {
	c := &Client{socket: socket, timeout: timeout}
	c.http.Transport = &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		},
		DisableKeepAlives:  true,
		DisableCompression: true,
	}
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return c
}

// Version returns lbd's version.
func (c *Client) Version(ctx context.Context) (Version, error) {
	return call[Version](ctx, c, "GET", "/v1/version", nil)
}

// Status returns lbd's status.
func (c *Client) Status(ctx context.Context) (Status, error) {
	return call[Status](ctx, c, "GET", "/v1/status", nil)
}

// Services returns every virtual service.
func (c *Client) Services(ctx context.Context) ([]Service, error) {
	return call[[]Service](ctx, c, "GET", "/v1/services", nil)
}

// Service returns one virtual service by its name or its key. The error matches
// ErrNotFound if there is none.
func (c *Client) Service(ctx context.Context, name string) (Service, error) {
	if name == "" || name == "." || name == ".." {
		// These have a meaning of their own in a path.
		return Service{}, fmt.Errorf("virtual service %q: %w", name, ErrNotFound)
	}
	return call[Service](ctx, c, "GET", "/v1/services/"+url.PathEscape(name), nil)
}

// Explain says who would get the next connection of a virtual service, by its
// name or its key. The error matches ErrNotFound if there is none.
func (c *Client) Explain(ctx context.Context, name string) (Explanation, error) {
	if name == "" || name == "." || name == ".." {
		return Explanation{}, fmt.Errorf("virtual service %q: %w", name, ErrNotFound)
	}
	return call[Explanation](ctx, c, "GET", "/v1/services/"+url.PathEscape(name)+"/explain", nil)
}

// SetAdmin changes what is said of real servers, and returns what they are then.
// The error matches ErrNotFound if there is no such real server.
func (c *Client) SetAdmin(ctx context.Context, t AdminTarget, r AdminRequest) (AdminResult, error) {
	path := "/v1/servers/"
	if t.Service == "." || t.Service == ".." {
		return AdminResult{}, fmt.Errorf("virtual service %q: %w", t.Service, ErrNotFound)
	}
	if t.Service != "" {
		path = "/v1/services/" + url.PathEscape(t.Service) + "/servers/"
	}
	return call[AdminResult](ctx, c, "PUT", path+url.PathEscape(t.server())+"/admin", r)
}

// Doctor says what lbd finds of its host.
func (c *Client) Doctor(ctx context.Context) (Diagnosis, error) {
	return call[Diagnosis](ctx, c, "GET", "/v1/doctor", nil)
}

// Table reads what lbd's engine holds now, with its real servers in the engine's
// order and without what only lbd knows.
func (c *Client) Table(ctx context.Context) ([]Service, error) {
	return call[[]Service](ctx, c, "GET", "/v1/table", nil)
}

// Check asks whether this lbd on its host could load a file.
func (c *Client) Check(ctx context.Context, f File) (CheckReport, error) {
	return call[CheckReport](ctx, c, "POST", "/v1/check", f)
}

// Diff asks what a load of a file would write.
func (c *Client) Diff(ctx context.Context, f File) (Plan, error) {
	return call[Plan](ctx, c, "POST", "/v1/diff", f)
}

// Reload makes lbd load its file again. A refused file is not an error: see
// ReloadResult.
func (c *Client) Reload(ctx context.Context) (ReloadResult, error) {
	return call[ReloadResult](ctx, c, "POST", "/v1/reload", nil)
}

// ReloadNow does so and drains nothing: the connections of real servers that left
// the file, now or before, are cut.
func (c *Client) ReloadNow(ctx context.Context) (ReloadResult, error) {
	return call[ReloadResult](ctx, c, "POST", "/v1/reload?now=true", nil)
}

// Reconcile makes lbd compare and repair the table now.
func (c *Client) Reconcile(ctx context.Context) (ReconcileResult, error) {
	return call[ReconcileResult](ctx, c, "POST", "/v1/reconcile", nil)
}

// call makes one request with in as its body, none if in is nil.
func call[T any](ctx context.Context, c *Client, method, path string, in any) (T, error) {
	var out T
	if c.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.timeout)
		defer cancel()
	}
	body, err := c.roundTrip(ctx, method, path, in)
	if err != nil {
		return out, err
	}
	if err := json.Unmarshal(body, &out); err != nil {
		return out, fmt.Errorf("%s %s: the answer is not lbd's: %w", method, path, err)
	}
	if c.OnAnswer != nil {
		c.OnAnswer(body)
	}
	return out, nil
}

func (c *Client) roundTrip(ctx context.Context, method, path string, in any) ([]byte, error) {
	var reqBody io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		reqBody = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://lbd"+path, reqBody)
	if err != nil {
		return nil, err
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(err)
	}
	defer resp.Body.Close()
	return c.readAnswer(resp)
}

// readAnswer reads a whole answer.
func (c *Client) readAnswer(resp *http.Response) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, c.unreachable(err)
	case len(body) > maxAnswer:
		return nil, errors.New("the answer is too large")
	case resp.StatusCode != http.StatusOK:
		return nil, newStatusError(resp.StatusCode, body)
	}
	return body, nil
}
