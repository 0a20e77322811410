package httpcheck

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"

	"github.com/lbd-project/lbd/healthcheck/httpconn"
	"github.com/lbd-project/lbd/healthcheck/stream"
)

// exchange2 asks by HTTP/2.
func (k *checker) exchange2(ctx context.Context, c *stream.Conn, x *exchange) (int, error) {
	client, err := httpconn.NewHTTP2(ctx, c.Conn)
	if err != nil {
		return 0, httpconn.Explain(err)
	}
	defer client.Close()
	answer, err := client.RoundTrip(k.request2(x).WithContext(ctx))
	if err != nil {
		return 0, httpconn.Explain(err)
	}
	defer answer.Body.Close()
	return answer.StatusCode, k.judge(x, answer)
}

func (k *checker) request2(x *exchange) *http.Request {
	// validate has parsed it before.
	u, _ := url.ParseRequestURI(x.Path)
	u.Scheme, u.Host = "http", k.spec.Host
	if k.tls != nil {
		u.Scheme = "https"
	}
	r := &http.Request{Method: k.spec.Method, URL: u, Host: k.spec.Host, Header: http.Header{"User-Agent": {userAgent}}}
	fresh := map[string]bool{}
	for _, h := range k.spec.Headers {
		name := http.CanonicalHeaderKey(h.Name)
		if !fresh[name] {
			r.Header.Del(name)
			fresh[name] = true
		}
		r.Header.Add(name, h.Value)
	}
	if len(k.spec.Body) > 0 {
		r.Body = io.NopCloser(bytes.NewReader(k.spec.Body))
		r.ContentLength = int64(len(k.spec.Body))
	}
	return r
}
