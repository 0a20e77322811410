package notify

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/healthcheck/tlsopt"
	"github.com/lbd-project/lbd/internal/api"
	"github.com/lbd-project/lbd/internal/certtest"
	"github.com/lbd-project/lbd/internal/checktest"
	"github.com/lbd-project/lbd/internal/config"
)

// secret is in the URL and in a header of each request, and must be in no error.
const secret = "xyzzy"

// hookTo returns a webhook to a URL without its path.
func hookTo(base string, options *tlsopt.Options) *webhook {
	_, host, _ := strings.Cut(base, "://")
	return newWebhook(&config.Webhook{
		URL: config.Secret(base + "/hook/" + secret + "?token=" + secret), Host: host, TLS: options,
		Headers: []config.HookHeader{{Name: "Authorization", Value: "Bearer " + secret}},
	})
}

func someEvents() api.Notification {
	at := time.Date(2026, 11, 30, 12, 0, 0, 123456789, time.UTC)
	return api.Notification{Version: 1, Host: "lb1", Lost: 7, Events: []api.Event{
		{Seq: 8, Time: at, Kind: api.EventServer, Service: "web", Key: "TCP 192.0.2.10:80", RealServer: "10.0.0.2:80", State: "down",
			Text: "down, weight 0", Reason: "connection \"refused\"\n<b>"},
		{Seq: 9, Time: at, Kind: api.EventAdmin, Service: "web", Key: "TCP 192.0.2.10:80", RealServer: "10.0.0.3:80", Text: "drained", By: "uid 4711"},
	}}
}

// within sends to w.
func within(t *testing.T, w *webhook, timeout time.Duration) (again bool, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	again, err = w.send(ctx, someEvents())
	if err != nil && strings.Contains(err.Error(), secret) {
		t.Errorf("the error has a secret: %v", err)
	}
	return again, err
}

// A request is what openapi.json says.
func TestRequest(t *testing.T) {
	type request struct {
		Method, Target, Type, Agent, Authorization, Encoding string
		Length                                               int64
	}
	var got request
	var body []byte
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got = request{r.Method, r.RequestURI, r.Header.Get("Content-Type"), r.Header.Get("User-Agent"), r.Header.Get("Authorization"),
			r.Header.Get("Accept-Encoding"), r.ContentLength}
		body, _ = io.ReadAll(r.Body)
	}))
	defer server.Close()
	if again, err := within(t, hookTo(server.URL, nil), 10*time.Second); err != nil || again {
		t.Fatalf("want success, got %v, %v", again, err)
	}
	want := request{"POST", "/hook/xyzzy?token=xyzzy", "application/json", "lbd", "Bearer xyzzy", "", int64(len(body))}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
	var n api.Notification
	if err := json.Unmarshal(body, &n); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(someEvents(), n); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
}

// Who answers decides whether it is asked again.
func TestAnswers(t *testing.T) {
	for status, want := range map[int]struct {
		again bool
		err   string
	}{
		200: {}, 201: {}, 202: {}, 204: {}, 299: {},
		301: {false, "the server answers 301 Moved Permanently: redirects are not followed"},
		307: {false, "the server answers 307 Temporary Redirect: redirects are not followed"},
		304: {false, "the server answers 304 Not Modified: redirects are not followed"},
		400: {false, "the server answers 400 Bad Request: it is not asked again"},
		401: {false, "the server answers 401 Unauthorized: it is not asked again"},
		408: {true, "the server answers 408 Request Timeout"},
		425: {true, "the server answers 425 Too Early"},
		429: {true, "the server answers 429 Too Many Requests"},
		500: {true, "the server answers 500 Internal Server Error"},
		503: {true, "the server answers 503 Service Unavailable"},
		599: {true, "the server answers 599"},
		999: {false, "the server answers 999: it is not asked again"},
	} {
		var asked atomic.Int32
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			w.Header().Set("Location", "/"+secret)
			w.Header().Set("Retry-After", "100000000")
			w.WriteHeader(status)
			fmt.Fprint(w, r.Header, r.RequestURI)
		}))
		again, err := within(t, hookTo(server.URL, nil), 10*time.Second)
		server.Close()
		text := ""
		if err != nil {
			text = err.Error()
		}
		if again != want.again || text != want.err {
			t.Errorf("%d: want %v, %q, got %v, %q", status, want.again, want.err, again, text)
		}
		if n := asked.Load(); n != 1 {
			t.Errorf("%d: want one request, got %d", status, n)
		}
	}
}

// echo answers with what it is sent, as the port of that name does. It hides what
// the connection can do: splice(2) keeps pipes.
func echo(c net.Conn) { io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c}) }

// afterRequest answers a request.
func afterRequest(answer func(net.Conn)) func(net.Conn) {
	return func(c net.Conn) {
		b := make([]byte, 1<<10)
		if _, err := c.Read(b); err == nil {
			answer(c)
		}
	}
}

// A server can do what it likes: a request ends in time, costs little, and the
// error has nothing that the server could have learnt from it.
func TestHostile(t *testing.T) {
	const timeout = 20 * time.Second
	const ok = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
	const noHTTP = "what the server answers is not HTTP/1.1, or too long"
	const slow = "no answer within the timeout"
	const gone = "the server hangs up"
	for name, tt := range map[string]struct {
		answer func(net.Conn)
		want   string
	}{
		"hangs":              {checktest.Hang, slow},
		"closes":             {checktest.Close, gone},
		"resets":             {checktest.Reset, gone},
		"closes after":       {afterRequest(checktest.Close), gone},
		"echoes":             {echo, noHTTP},
		"nonsense":           {afterRequest(checktest.Say("SSH-2.0-" + secret + "\r\n")), noHTTP},
		"half a header":      {afterRequest(checktest.SayAndClose("HTTP/1.1 200 OK\r\nA: ")), gone},
		"secret status":      {afterRequest(checktest.Say("HTTP/1.1 " + secret + "\r\n\r\n")), noHTTP},
		"secret version":     {afterRequest(checktest.Say("HTTP/" + secret + " 200\r\n\r\n")), noHTTP},
		"secret length":      {afterRequest(checktest.Say("HTTP/1.1 200 OK\r\nContent-Length: " + secret + "\r\n\r\n")), noHTTP},
		"secret encoding":    {afterRequest(checktest.Say("HTTP/1.1 200 OK\r\nTransfer-Encoding: " + secret + "\r\n\r\n")), noHTTP},
		"secret header":      {afterRequest(checktest.Say("HTTP/1.1 200 OK\r\n" + secret + "\r\n\r\n")), noHTTP},
		"drips its header":   {afterRequest(checktest.Drip(ok, 20*time.Millisecond)), slow},
		"endless header":     {afterRequest(checktest.Endless("HTTP/1.1 200 OK\r\n")), noHTTP},
		"endless 1xx":        {afterRequest(checktest.Endless("HTTP/1.1 103 Early Hints\r\n\r\n")), noHTTP},
		"endless body":       {afterRequest(checktest.Endless("HTTP/1.1 200 OK\r\n\r\n" + strings.Repeat("x", 1<<16))), ""},
		"body never comes":   {afterRequest(checktest.Say("HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n")), ""},
		"body of bad chunks": {afterRequest(checktest.Say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + secret)), ""},
		"switches protocols": {afterRequest(checktest.Say("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")), "the server answers 101 Switching Protocols: it is not asked again"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := hookTo("http://"+checktest.Serve(t, checktest.Listen(t), tt.answer), nil)
			begun := time.Now()
			timeout := timeout
			if tt.want == slow {
				timeout = 300 * time.Millisecond
			}
			_, err := within(t, w, timeout)
			if took := time.Since(begun); took > 15*time.Second {
				t.Errorf("took %v", took)
			}
			text := ""
			if err != nil {
				text = err.Error()
			}
			if text != tt.want {
				t.Errorf("want %q, got %q (%#v)", tt.want, text, err)
			}
		})
	}
	t.Run("refuses", func(t *testing.T) {
		address := checktest.Refusing(t)
		again, err := within(t, hookTo("http://"+address, nil), timeout)
		if want := "dial tcp " + address + ": connect: connection refused"; !again || err == nil || err.Error() != want {
			t.Errorf("want %q, got %v, %v", want, again, err)
		}
	})
	t.Run("unknown name", func(t *testing.T) {
		// As net/http says it; to ask would be to ask the servers of this host.
		err := explain(&url.Error{Op: "Post", URL: "http://nosuch.example/" + secret, Err: &net.OpError{
			Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "nosuch.example", IsNotFound: true},
		}})
		if want := "lookup nosuch.example: no such host"; err.Error() != want {
			t.Errorf("want %q, got %q", want, err)
		}
	})
}

// Certificates are verified.
func TestTLS(t *testing.T) {
	authority, other := certtest.New(t), certtest.New(t)
	client := authority.Issue(t, certtest.Spec{CommonName: "lbd"})
	good := authority.Issue(t, certtest.Spec{Names: []string{"127.0.0.1"}})
	ca := &tlsopt.Options{CA: authority.PEM()}
	for name, tt := range map[string]struct {
		config  *tls.Config
		options *tlsopt.Options
		want    string // the beginning
	}{
		"good":        {&tls.Config{Certificates: []tls.Certificate{good.TLS}}, ca, ""},
		"host's own":  {&tls.Config{Certificates: []tls.Certificate{good.TLS}}, &tlsopt.Options{}, "TLS handshake: the certificate is not trusted: its issuer is unknown"},
		"other":       {&tls.Config{Certificates: []tls.Certificate{other.Issue(t, certtest.Spec{Names: []string{"127.0.0.1"}}).TLS}}, ca, "TLS handshake: the certificate is not trusted"},
		"itself":      {&tls.Config{Certificates: []tls.Certificate{certtest.SelfSigned(t, certtest.Spec{Names: []string{"127.0.0.1"}}).TLS}}, ca, "TLS handshake: the certificate is not trusted: it is signed by itself"},
		"name":        {&tls.Config{Certificates: []tls.Certificate{authority.Issue(t, certtest.Spec{Names: []string{"example.com"}}).TLS}}, ca, "TLS handshake: the certificate is for example.com, not for 127.0.0.1"},
		"server_name": {&tls.Config{Certificates: []tls.Certificate{authority.Issue(t, certtest.Spec{Names: []string{"example.com"}}).TLS}}, &tlsopt.Options{CA: authority.PEM(), ServerName: "example.com"}, ""},
		"expired": {&tls.Config{Certificates: []tls.Certificate{authority.Issue(t, certtest.Spec{Names: []string{"127.0.0.1"}, NotAfter: time.Now().Add(-time.Minute)}).TLS}},
			ca, "TLS handshake: the certificate expired on"},
		"old": {&tls.Config{Certificates: []tls.Certificate{good.TLS}, MaxVersion: tls.VersionTLS12}, &tlsopt.Options{CA: authority.PEM(), MinVersion: tls.VersionTLS13}, "TLS handshake: the server "},
		"client": {&tls.Config{Certificates: []tls.Certificate{good.TLS}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: authority.Pool()},
			&tlsopt.Options{CA: authority.PEM(), ClientCert: client.CertPEM, ClientKey: client.KeyPEM}, ""},
		"no client": {&tls.Config{Certificates: []tls.Certificate{good.TLS}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: authority.Pool()},
			ca, "the server refuses: it demands a client certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int32
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
			server.TLS = tt.config
			server.Config.ErrorLog = log.New(io.Discard, "", 0)
			server.StartTLS()
			defer server.Close()
			_, err := within(t, hookTo(server.URL, tt.options), 10*time.Second)
			if (err == nil) != (tt.want == "") || err != nil && !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("want %q, got %v", tt.want, err)
			}
			if (asked.Load() == 1) != (tt.want == "") {
				t.Errorf("the server has got %d requests", asked.Load())
			}
		})
	}
	t.Run("plain", func(t *testing.T) {
		server := httptest.NewServer(http.NotFoundHandler())
		defer server.Close()
		_, err := within(t, hookTo("https"+strings.TrimPrefix(server.URL, "http"), ca), 10*time.Second)
		if err == nil || !strings.HasPrefix(err.Error(), "TLS handshake: the server does not speak TLS") {
			t.Errorf("want no TLS, got %v", err)
		}
	})
	t.Run("hangs", func(t *testing.T) {
		_, err := within(t, hookTo("https://"+checktest.Serve(t, checktest.Listen(t), checktest.Hang), ca), 100*time.Millisecond)
		if err == nil || err.Error() != "no answer within the timeout" {
			t.Errorf("want a timeout, got %v", err)
		}
	})
}

// A thousand requests that fail in all ways leave nothing behind.
func TestWebhookLeaks(t *testing.T) {
	answers := []func(net.Conn){
		checktest.Hang, checktest.Hang, checktest.Reset, echo, checktest.Close,
		afterRequest(checktest.Say("HTTP/1.1 503 No\r\nContent-Length: 9\r\n\r\n")),
		afterRequest(checktest.Say("HTTP/1.1 200 OK\r\n\r\n")),
	}
	var hooks []*webhook
	for i, answer := range answers {
		scheme := "http://"
		var options *tlsopt.Options
		if i%2 == 1 {
			scheme, options = "https://", &tlsopt.Options{}
		}
		hooks = append(hooks, hookTo(scheme+checktest.Serve(t, checktest.Listen(t), answer), options))
	}
	var n atomic.Int32
	checktest.Leaks(t, 1000, func() {
		within(t, hooks[int(n.Add(1))%len(hooks)], 20*time.Millisecond)
	})
}

// No format of a hook has its secrets.
func TestSecret(t *testing.T) {
	h := hookTo("https://example.com", nil)
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
		for _, value := range []any{*h.spec, h.spec.Headers, h.spec.URL} {
			if text := fmt.Sprintf(format, value); strings.Contains(text, secret) || strings.Contains(text, fmt.Sprintf("%x", secret)) {
				t.Errorf("%s: %s", format, text)
			}
		}
	}
	if b, err := json.Marshal(h.spec); err != nil || strings.Contains(string(b), secret) {
		t.Errorf("JSON: %s, %v", b, err)
	}
}
