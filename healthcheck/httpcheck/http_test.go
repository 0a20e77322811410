package httpcheck

import (
	"crypto/md5"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/healthcheck/tlsopt"
	"github.com/lbd-project/lbd/internal/checktest"
)

// kind is a version with or without TLS.
type kind struct {
	version string
	tls     bool
}

var kinds = []kind{{Version10, false}, {Version11, false}, {Version2, false}, {Version10, true}, {Version11, true}, {Version2, true}}

func (k kind) String() string { return fmt.Sprintf("HTTP/%s, TLS %v", k.version, k.tls) }

// TestHealthy has each kind ask a real server, with every option at work.
func TestHealthy(t *testing.T) {
	options, cert := secure(t)
	for _, k := range kinds {
		var got *http.Request
		var sent []byte
		handler := func(w http.ResponseWriter, r *http.Request) {
			got = r
			sent, _ = io.ReadAll(r.Body)
			w.WriteHeader(404)
			io.WriteString(w, strings.Repeat("all is well\n", 10000))
		}
		c := Check{
			Version: k.version, Method: "PUT", Host: "a.example", Body: []byte("ping"), Headers: []Header{{"X-Two", "1"}, {"User-Agent", "me"}, {"x-two", "2"}},
			Requests: []Request{{
				Path: "/a/%2F?b=c&d", Status: StatusRanges{{200, 200}, {400, 404}},
				Digest: fmt.Sprintf("sha256:%X", sha256.Sum256([]byte(strings.Repeat("all is well\n", 10000)))),
				Match:  regexp.MustCompile(`(?m)^all is \w+$`),
			}},
		}
		to := serve(t, handler, nil)
		if k.tls {
			c.TLS = options
			to = serve(t, handler, cert)
		}
		r, err := run(t, c, to)
		if err != nil || r.Detail != "status 404" || r.Latency <= 0 || r.Warning != "" {
			t.Errorf("%v: want health, got %+v, %v", k, r, err)
			continue
		}
		if got.Proto != "HTTP/"+k.version && got.Proto != "HTTP/2.0" || (got.TLS != nil) != k.tls {
			t.Errorf("%v: the server saw %s", k, got.Proto)
		}
		if got.TLS != nil && got.TLS.ServerName != "a.example" {
			t.Errorf("%v: want SNI a.example, got %q", k, got.TLS.ServerName)
		}
		want := "PUT /a/%2F?b=c&d a.example ping"
		if line := got.Method + " " + got.RequestURI + " " + got.Host + " " + string(sent); line != want {
			t.Errorf("%v: want %q, got %q", k, want, line)
		}
		if diff := cmp.Diff([]string{"1", "2"}, got.Header["X-Two"]); diff != "" || got.UserAgent() != "me" || got.Header.Get("Accept-Encoding") != "" {
			t.Errorf("%v: headers %v", k, got.Header)
		}
	}
}

// TestRequestText has the bytes of HTTP/1.x.
func TestRequestText(t *testing.T) {
	for _, tt := range []struct {
		check Check
		want  string
	}{
		{Check{}, "GET / HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\nUser-Agent: lbd\r\n\r\n"},
		{Check{Version: Version10}, "GET / HTTP/1.0\r\nHost: HOST\r\nUser-Agent: lbd\r\n\r\n"},
		{Check{Version: Version10, Headers: []Header{{"Connection", "close"}}}, "GET / HTTP/1.0\r\nHost: HOST\r\nUser-Agent: lbd\r\nConnection: close\r\n\r\n"},
		{Check{Host: "a.example:81", Headers: []Header{{"user-agent", " me "}}}, "GET / HTTP/1.1\r\nHost: a.example:81\r\nConnection: close\r\nuser-agent: me\r\n\r\n"},
		{Check{Method: "POST"}, "POST / HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\nUser-Agent: lbd\r\nContent-Length: 0\r\n\r\n"},
		{Check{Body: []byte("ab")}, "GET / HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\nUser-Agent: lbd\r\nContent-Length: 2\r\n\r\nab"},
	} {
		got := make(chan string, 1)
		to := raw(t, func(c net.Conn) {
			b := make([]byte, len(tt.want)+20)
			c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
			n, _ := io.ReadFull(c, b)
			got <- string(b[:n])
			io.WriteString(c, "HTTP/1.0 200 OK\r\n\r\n")
		})
		if _, err := run(t, tt.check, to); err != nil {
			t.Error(err)
		}
		want := strings.Replace(tt.want, "HOST", to, 1)
		if diff := cmp.Diff(want, <-got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	}
}

// TestRedirect takes a redirect for what it is: the server that it names is not
// asked.
func TestRedirect(t *testing.T) {
	for _, k := range kinds[:3] {
		var asked atomic.Int32
		other := serve(t, func(http.ResponseWriter, *http.Request) { asked.Add(1) }, nil)
		to := serve(t, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://"+other+"/x", http.StatusFound)
		}, nil)
		_, err := run(t, Check{Version: k.version}, to)
		want := fmt.Sprintf("GET /: status 302 is not 200-299 (redirects are not followed: http://%s/x)", other)
		if checktest.Text(err) != want {
			t.Errorf("%v: want %q, got %v", k, want, err)
		}
		ranges := StatusRanges{{300, 399}}
		if _, err := run(t, Check{Version: k.version, Requests: []Request{{Path: "/", Status: ranges}}}, to); err != nil {
			t.Errorf("%v: 302 with 300-399: %v", k, err)
		}
		if asked.Load() != 0 {
			t.Errorf("%v: followed the redirect", k)
		}
	}
}

// TestBoth wants the digest and the status, each wrong once.
func TestBoth(t *testing.T) {
	status := http.StatusOK
	to := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		io.WriteString(w, "body")
	}, nil)
	good := fmt.Sprintf("md5:%x", md5.Sum([]byte("body")))
	for _, tt := range []struct {
		name    string
		status  int
		request Request
		want    string
	}{
		{"both", 200, Request{Digest: good}, ""},
		{"status", 500, Request{Digest: good}, "GET /: status 500 is not 200-299"},
		{"digest", 200, Request{Digest: "md5:" + strings.Repeat("00", 16)}, "GET /: the body has the md5 digest 841a2d689ad86bd1611447453c22c6fc, want 00000000000000000000000000000000"},
		{"match", 200, Request{Match: regexp.MustCompile("^bo.y$")}, ""},
		{"no match", 200, Request{Match: regexp.MustCompile("Body")}, `GET /: the body of 4 bytes does not match "Body"`},
		{"negated", 200, Request{Match: regexp.MustCompile("Body"), Negate: true}, ""},
		{"negated match", 200, Request{Match: regexp.MustCompile("bod"), Negate: true}, `GET /: the body of 4 bytes matches "bod", which it must not`},
		{"all", 201, Request{Match: regexp.MustCompile("b"), Digest: good, Status: StatusRanges{{201, 201}}}, ""},
	} {
		status, tt.request.Path = tt.status, "/"
		if _, err := run(t, Check{Requests: []Request{tt.request}}, to); checktest.Text(err) != tt.want {
			t.Errorf("%s: want %q, got %v", tt.name, tt.want, err)
		}
	}
}

// TestOffsets has matches that begin too early, in time and too late.
func TestOffsets(t *testing.T) {
	to := serve(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok, not ok") }, nil)
	re := regexp.MustCompile
	for _, tt := range []struct {
		request Request
		want    string
	}{
		{Request{Match: re("ok"), MinOffset: 8}, ""},
		{Request{Match: re("ok"), MinOffset: 9}, `GET /: the body of 10 bytes does not match "ok" at offset 9 or later`},
		{Request{Match: re("ok"), MinOffset: 1, MaxOffset: 8}, ""},
		{Request{Match: re("ok"), MinOffset: 1, MaxOffset: 7}, `GET /: the body of 10 bytes does not match "ok" at offset 1 to 7`},
		{Request{Match: re("not"), MaxOffset: 4}, ""},
		{Request{Match: re("not"), MaxOffset: 3}, `GET /: the body of 10 bytes does not match "not" at offset 0 to 3`},
		{Request{Match: re(`\Anot`), MinOffset: 4}, ""},
		{Request{Match: re(`$`), MinOffset: 10}, ""},
		{Request{Match: re(`$`), MinOffset: 11}, `GET /: the body of 10 bytes does not match "$" at offset 11 or later`},
		{Request{Match: re("not"), Negate: true, MinOffset: 5}, ""},
		{Request{Match: re("not"), Negate: true, MaxOffset: 3}, ""},
		{Request{Match: re("not"), Negate: true, MaxOffset: 4}, `GET /: the body of 10 bytes matches "not" at offset 0 to 4, which it must not`},
	} {
		tt.request.Path = "/"
		if _, err := run(t, Check{Requests: []Request{tt.request}}, to); checktest.Text(err) != tt.want {
			t.Errorf("%+v: want %q, got %v", tt.request, tt.want, err)
		}
	}
}

// TestExpectedHeaders has each version judge the header of an answer.
func TestExpectedHeaders(t *testing.T) {
	to := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-State", "ready")
		w.Header()["Set-Cookie"] = []string{"a=1", "node=b"}
		io.WriteString(w, "ok")
	}, nil)
	match := func(name, expr string) HeaderMatch { return HeaderMatch{Name: name, Match: regexp.MustCompile(expr)} }
	not := func(name, expr string) HeaderMatch { return HeaderMatch{name, regexp.MustCompile(expr), true} }
	for _, tt := range []struct {
		headers []HeaderMatch
		want    string
	}{
		{[]HeaderMatch{match("X-State", "^ready$")}, ""},
		{[]HeaderMatch{match("x-STATE", "ead")}, ""},
		{[]HeaderMatch{match("X-State", "^read$")}, `GET /: the header X-State does not match "^read$"`},
		{[]HeaderMatch{match("X-None", "")}, "GET /: the answer has no header X-None"},
		{[]HeaderMatch{match("Set-Cookie", "^node=")}, ""},
		{[]HeaderMatch{match("Set-Cookie", "a=1.*node")}, `GET /: the header Set-Cookie does not match "a=1.*node"`},
		{[]HeaderMatch{not("Set-Cookie", "^node=")}, `GET /: the header Set-Cookie matches "^node=", which it must not`},
		{[]HeaderMatch{not("Set-Cookie", "^c="), not("X-None", "")}, ""},
		{[]HeaderMatch{match("X-State", "ready"), match("X-None", "")}, "GET /: the answer has no header X-None"},
	} {
		for _, k := range kinds[:3] {
			_, err := run(t, Check{Version: k.version, Requests: []Request{{Path: "/", Headers: tt.headers}}}, to)
			if checktest.Text(err) != tt.want {
				t.Errorf("%v, %v: want %q, got %v", k, tt.headers, tt.want, err)
			}
		}
	}
}

// TestSeveral asks for all, and after a failure first for what failed.
func TestSeveral(t *testing.T) {
	var asked []string
	broken := ""
	to := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path)
		switch r.URL.Path {
		case broken:
			w.WriteHeader(500)
		case "/c":
			w.WriteHeader(204)
		}
	}, nil)
	checker, err := (Check{Requests: []Request{{Path: "/a"}, {Path: "/b"}, {Path: "/c"}}}).NewChecker(netip.MustParseAddrPort(to), testEnv)
	if err != nil {
		t.Fatal(err)
	}
	for i, step := range []struct{ broken, asked, want string }{
		{"", "/a /b /c", ""},
		{"/b", "/a /b", "GET /b: status 500 is not 200-299"},
		{"/b", "/b", "GET /b: status 500 is not 200-299"},
		{"/c", "/b /a /c", "GET /c: status 500 is not 200-299"},
		{"", "/c /a /b", ""},
		{"", "/a /b /c", ""},
	} {
		asked, broken = nil, step.broken
		r, err := checker.Check(t.Context())
		if checktest.Text(err) != step.want || strings.Join(asked, " ") != step.asked {
			t.Errorf("step %d: want %q and %q, got %q and %v", i, step.asked, step.want, asked, err)
		}
		if err == nil && r.Detail != "status 200, 200, 204" {
			t.Errorf("step %d: detail %q", i, r.Detail)
		}
	}
}

// TestNoBody has answers that cannot have a body, whatever their header says.
func TestNoBody(t *testing.T) {
	for _, tt := range []struct {
		method, answer string
		status         StatusRanges
	}{
		{"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", nil},
		{"GET", "HTTP/1.1 204 No Content\r\nContent-Length: 100\r\n\r\n", nil},
		{"GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 100\r\n\r\n", StatusRanges{{304, 304}}},
		{"GET", "HTTP/1.1 101 Switching Protocols\r\n\r\n", StatusRanges{{101, 101}}},
		{"GET", "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", nil},
	} {
		hold := make(chan struct{})
		to := raw(t, func(c net.Conn) {
			readRequest(c)
			io.WriteString(c, tt.answer)
			<-hold
		})
		c := Check{Method: tt.method, Requests: []Request{{Path: "/", Status: tt.status}}}
		if _, err := run(t, c, to); err != nil {
			t.Errorf("%s %q: %v", tt.method, tt.answer, err)
		}
		close(hold)
	}
}

// TestWarning has the warning in the result of a healthy server and of one that
// fails.
func TestWarning(t *testing.T) {
	options, cert := secure(t)
	for _, status := range []int{200, 500} {
		to := serve(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(status) }, cert)
		o := &tlsopt.Options{CA: options.CA, WarnBefore: 48 * time.Hour}
		r, err := run(t, Check{TLS: o}, to)
		if !strings.HasPrefix(r.Warning, "the certificate expires within a day: ") || (err == nil) != (status == 200) {
			t.Errorf("status %d: want a warning, got %+v, %v", status, r, err)
		}
	}
}
