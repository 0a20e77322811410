package httpcheck

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/lbd-project/lbd/healthcheck"
)

// FuzzText has any options. Those that are taken make one request, as asked for,
// and nothing beside it that a server might take for another.
func FuzzText(f *testing.F) {
	f.Add("GET", "/x?y=1", "a.example:80", "X-Probe", "lbd", "", false)
	f.Add("POST", "//a", "[::1]", "User-Agent", " a\tb ", "{}", true)
	f.Add("PUT", "/%0d%0aGET", "", "Connection", "close", "GET / HTTP/1.1\r\n\r\n", true)
	f.Add("OPTIONS", "/", "a\r\nb", "A\r\nB", "c\r\n\r\nGET /", "", false)
	f.Fuzz(func(t *testing.T, method, path, host, name, value, body string, old bool) {
		c := Check{
			Method: method, Host: host, Body: []byte(body), Version: Version11,
			Headers: []Header{{name, value}}, Requests: []Request{{Path: path}},
		}
		if old {
			c.Version = Version10
		}
		target := netip.MustParseAddrPort("192.0.2.1:80")
		made, err := c.NewChecker(target, healthcheck.Env{})
		if err != nil {
			return
		}
		k := made.(*checker)
		br := bufio.NewReader(bytes.NewReader(k.exchanges[0].text))
		r, err := http.ReadRequest(br)
		if err != nil {
			t.Fatalf("%q: %v", k.exchanges[0].text, err)
		}
		got, err := io.ReadAll(r.Body)
		if err != nil || string(got) != body || br.Buffered() > 0 {
			t.Fatalf("%q: body %q, then %d bytes, %v", k.exchanges[0].text, got, br.Buffered(), err)
		}
		want := method
		if want == "" {
			want = http.MethodGet
		}
		if r.Method != want || r.RequestURI != path || host != "" && r.Host != host || r.ProtoAtLeast(1, 1) == old {
			t.Fatalf("%q: read as %s %s of %s, %s", k.exchanges[0].text, r.Method, r.RequestURI, r.Host, r.Proto)
		}
		if v := r.Header.Values(name); len(v) == 0 || v[len(v)-1] != strings.Trim(strings.TrimSpace(value), " \t") {
			t.Fatalf("%q: header %q is %q", k.exchanges[0].text, name, v)
		}
	})
}
