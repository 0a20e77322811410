package notify

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/lbd-project/lbd/healthcheck/hostile"
	"github.com/lbd-project/lbd/healthcheck/tlsopt"
	"github.com/lbd-project/lbd/internal/api"
	"github.com/lbd-project/lbd/internal/config"
)

const (
	// maxBatch is how many events a request has.
	maxBatch = 50
	// maxHeader bounds the header of an answer, in bytes. Of its body at most
	// maxBody bytes are read, and only for readTime: nobody wants to know what it
	// says, but servers log a connection that is cut off while they write.
	maxHeader = 64 << 10
	maxBody   = 64 << 10
	readTime  = time.Second
	// maxRead bounds all that a server sends, what TLS adds included.
	maxRead = 256 << 10
)

// webhook is a sender that posts events to a web server. Each request has a
// connection of its own: they are rare, and none is left open.
type webhook struct {
	spec *config.Webhook
	// tls is nil for http, broken why it cannot be used.
	tls    *tls.Config
	broken error
}

func newWebhook(spec *config.Webhook) *webhook {
	w := &webhook{spec: spec}
	if spec.TLS != nil {
		host, _, err := net.SplitHostPort(spec.Host)
		if err != nil {
			host = spec.Host
		}
		w.tls, w.broken = spec.TLS.Config(host)
	}
	return w
}

// transport returns what makes the connection of one request, which ends with ctx
// in any case: net/http lets a connection that is being made outlive its request.
func (w *webhook) transport(ctx context.Context) *http.Transport {
	dial := func(_ context.Context, network, addr string) (net.Conn, error) {
		var d net.Dialer
		c, err := d.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		bound := hostile.Bound(ctx, c, maxRead)
		context.AfterFunc(ctx, func() { bound.Close() })
		return bound, nil
	}
	return &http.Transport{
		DialContext: dial,
		DialTLSContext: func(_ context.Context, network, addr string) (net.Conn, error) {
			c, err := dial(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			t, err := tlsopt.Client(ctx, c, w.tls)
			if err != nil {
				c.Close()
				return nil, &explained{err.Error(), err}
			}
			return t, nil
		},
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeader,
	}
}

func (w *webhook) send(ctx context.Context, n api.Notification) (again bool, err error) {
	if w.broken != nil {
		return false, w.broken
	}
	body, err := json.Marshal(n)
	if err != nil {
		return false, fmt.Errorf("encode events: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, string(w.spec.URL), bytes.NewReader(body))
	if err != nil {
		return false, errors.New("the URL cannot be used") // the error has it
	}
	for _, h := range w.spec.Headers {
		r.Header.Add(h.Name, string(h.Value))
	}
	if r.Header.Get("User-Agent") == "" {
		r.Header.Set("User-Agent", "lbd")
	}
	r.Header.Set("Content-Type", "application/json")
	client := http.Client{
		Transport:     w.transport(ctx),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	answer, err := client.Do(r)
	if err != nil {
		return true, explain(cmp.Or(ctx.Err(), err))
	}
	defer answer.Body.Close()
	// What follows a 101 is no body: reading it would not end with the context.
	if answer.StatusCode != http.StatusSwitchingProtocols {
		late := time.AfterFunc(readTime, cancel)
		defer late.Stop()
		io.Copy(io.Discard, io.LimitReader(answer.Body, maxBody)) // whatever comes of it
	}
	return judge(answer.StatusCode)
}

// judge says what a status means, by RFC 9110, section 15, and RFC 6585. It is
// told without the words of the server, which may be those of the request.
func judge(status int) (again bool, err error) {
	words := fmt.Sprintf("the server answers %d", status)
	if text := http.StatusText(status); text != "" {
		words += " " + text
	}
	switch {
	case status/100 == 2:
		return false, nil
	case status/100 == 3:
		return false, errors.New(words + ": redirects are not followed")
	case status == http.StatusRequestTimeout, status == http.StatusTooEarly, status == http.StatusTooManyRequests, status/100 == 5:
		return true, errors.New(words)
	}
	return false, errors.New(words + ": it is not asked again")
}
