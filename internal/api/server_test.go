package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// request makes one plain HTTP request, not with our client.
func request(t *testing.T, socket, method, path, contentType, body string) (code int, header http.Header, answer string) {
	t.Helper()
	c := http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
		DisableKeepAlives: true,
	}}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://lbd"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return resp.StatusCode, resp.Header, string(b)
}

func TestRoutes(t *testing.T) {
	const (
		jsonType = "application/json"
		file     = `{"name":"new.yaml","content":"engine: auto\n"}`
	)
	tests := []struct {
		name, method, path, contentType, body string
		code                                  int
	}{
		{"status", "GET", "/v1/status", "", "", 200},
		{"services", "GET", "/v1/services", "", "", 200},
		{"table", "GET", "/v1/table", "", "", 200},
		{"connections", "GET", "/v1/connections", "", "", 200},
		{"connections of a query", "GET", "/v1/connections?service=FWM%207&client=[2001:db8::1]:40000&server=10.0.0.0/8&state=fin_wait", "", "", 200},
		{"explain", "GET", "/v1/services/web/explain", "", "", 200},
		{"explain no such service", "GET", "/v1/services/nope/explain", "", "", 404},
		{"events", "GET", "/v1/events", "", "", 200},
		{"events since", "GET", "/v1/events?since=41", "", "", 200},
		{"doctor", "GET", "/v1/doctor", "", "", 200},
		{"service", "GET", "/v1/services/web", "", "", 200},
		{"service by key", "GET", "/v1/services/UDP%20192.0.2.9:53", "", "", 200},
		{"service with a strange name", "GET", "/v1/services/a%2Fb%252F%20%C3%A9", "", "", 200},
		{"no such service", "GET", "/v1/services/nope", "", "", 404},
		{"drain", "PUT", "/v1/services/web/servers/10.0.0.2:80/admin", jsonType, `{"mode": "drain", "deadline_seconds": 60}`, 200},
		{"weigh every port everywhere", "PUT", "/v1/servers/10.0.0.2/admin", jsonType, `{"weight": 0, "over_seconds": 0.5}`, 200},
		{"drain of IPv6", "PUT", "/v1/servers/%5Bfd00::2%5D:80/admin", jsonType, `{"mode": "none", "reset_weight": true}`, 200},
		{"drain nothing", "PUT", "/v1/services/nope/servers/10.0.0.2:80/admin", jsonType, `{"mode": "drain"}`, 404},
		{"check", "POST", "/v1/check", jsonType, file, 200},
		{"check with a charset", "POST", "/v1/check", jsonType + "; charset=utf-8", file, 200},
		{"diff", "POST", "/v1/diff", jsonType, file, 200},
		{"reload", "POST", "/v1/reload", "", "", 200},
		{"reconcile", "POST", "/v1/reconcile", "", "", 200},

		{"connections of a wrong address", "GET", "/v1/connections?client=192.0.2", "", "", 400},
		{"connections of a wrong prefix", "GET", "/v1/connections?server=192.0.2.0/33", "", "", 400},
		{"connections of a wrong state", "GET", "/v1/connections?state=OPEN", "", "", 400},
		{"connections of two states", "GET", "/v1/connections?state=UDP&state=NONE", "", "", 400},
		{"connections of an unknown parameter", "GET", "/v1/connections?vip=192.0.2.10", "", "", 400},
		{"connections of a broken query", "GET", "/v1/connections?client=%zz", "", "", 400},
		{"reload now", "POST", "/v1/reload?now", "", "", 200},
		{"reload now or not", "POST", "/v1/reload?now=maybe", "", "", 400},
		{"reload of an unknown parameter", "POST", "/v1/reload?later=1", "", "", 400},
		{"events of an unknown parameter", "GET", "/v1/events?kind=admin", "", "", 400},
		{"events since never", "GET", "/v1/events?since=-1", "", "", 400},
		{"events followed or not", "GET", "/v1/events?follow=maybe", "", "", 400},
		{"admin of a name", "PUT", "/v1/servers/web1/admin", jsonType, `{"mode": "drain"}`, 400},
		{"admin of a prefix", "PUT", "/v1/servers/10.0.0.0%2F24/admin", jsonType, `{"mode": "drain"}`, 400},
		{"admin of a word", "PUT", "/v1/servers/10.0.0.2/admin", jsonType, `{"mode": "maint"}`, 400},
		{"admin of nothing", "PUT", "/v1/servers/10.0.0.2/admin", jsonType, `{}`, 400},
		{"admin weight too large", "PUT", "/v1/servers/10.0.0.2/admin", jsonType, `{"weight": 65536}`, 400},
		{"admin negative weight", "PUT", "/v1/servers/10.0.0.2/admin", jsonType, `{"weight": -1}`, 400},
		{"admin weight and none", "PUT", "/v1/servers/10.0.0.2/admin", jsonType, `{"weight": 1, "reset_weight": true}`, 400},
		{"admin over nothing", "PUT", "/v1/servers/10.0.0.2/admin", jsonType, `{"mode": "drain", "over_seconds": 1}`, 400},
		{"admin deadline of nothing", "PUT", "/v1/servers/10.0.0.2/admin", jsonType, `{"weight": 1, "deadline_seconds": 1}`, 400},
		{"admin for too long", "PUT", "/v1/servers/10.0.0.2/admin", jsonType, `{"weight": 1, "over_seconds": 1e9}`, 400},
		{"admin of the past", "PUT", "/v1/servers/10.0.0.2/admin", jsonType, `{"mode": "drain", "deadline_seconds": -1}`, 400},
		{"admin asked for", "GET", "/v1/servers/10.0.0.2/admin", "", "", 405},
		{"no such resource", "GET", "/v1/nope", "", "", 404},
		{"root", "GET", "/", "", "", 404},
		{"other version", "GET", "/v2/status", "", "", 404},
		{"wrong method", "DELETE", "/v1/services/web", "", "", 405},
		{"read of a write", "GET", "/v1/reload", "", "", 405},
		{"write of a read", "POST", "/v1/status", "", "", 405},
		{"body of a form", "POST", "/v1/check", "application/x-www-form-urlencoded", file, 415},
		{"body without a type", "POST", "/v1/diff", "", file, 415},
		{"no body", "POST", "/v1/check", jsonType, "", 400},
		{"not JSON", "POST", "/v1/check", jsonType, "engine: auto", 400},
		{"half JSON", "POST", "/v1/check", jsonType, `{"name":"x`, 400},
		{"unknown field", "POST", "/v1/check", jsonType, `{"name":"x","contents":"y"}`, 400},
		{"wrong type", "POST", "/v1/check", jsonType, `{"name":7}`, 400},
		{"array", "POST", "/v1/check", jsonType, `[]`, 400},
		{"trailing value", "POST", "/v1/check", jsonType, file + "{}", 400},
		{"trailing garbage", "POST", "/v1/check", jsonType, file + "]", 400},
		{"not UTF-8", "POST", "/v1/check", jsonType, "{\"name\":\"\xff\"}", 400},
		{"body of a reload", "POST", "/v1/reload", jsonType, `{}`, 400},
		{"body of a reconcile", "POST", "/v1/reconcile", "", `x`, 400},
	}
	backend := fixture()
	socket := serve(t, backend, Options{}, defaultLimits)
	var got bytes.Buffer
	for _, tt := range tests {
		code, header, body := request(t, socket, tt.method, tt.path, tt.contentType, tt.body)
		if code != tt.code {
			t.Errorf("%s: want status %d, got %d: %s", tt.name, tt.code, code, body)
		}
		wantType := jsonType
		if tt.code == 200 && (strings.HasPrefix(tt.path, "/v1/connections") || strings.HasPrefix(tt.path, "/v1/events")) {
			wantType = linesType
		}
		if ct := header.Get("Content-Type"); ct != wantType {
			t.Errorf("%s: want content type %q, got %q", tt.name, wantType, ct)
		}
		if allow := header.Get("Allow"); (allow != "") != (code == 405) {
			t.Errorf("%s: status %d with Allow %q", tt.name, code, allow)
		}
		fmt.Fprintf(&got, "# %s\n%s %s\n%d\n", tt.name, tt.method, tt.path, code)
		for line := range strings.Lines(body) {
			if err := json.Indent(&got, []byte(line), "", "  "); err != nil {
				t.Errorf("%s: %v: %q", tt.name, err, body)
			}
		}
		got.WriteByte('\n')
	}
	golden(t, "routes.txt", got.Bytes())

	want := File{Name: "new.yaml", Content: "engine: auto\n"}
	if diff := cmp.Diff([]File{want, want, want}, backend.files); diff != "" {
		t.Errorf("files that reached the backend (-want +got):\n%s", diff)
	}
	if got := backend.written(); got != 7 {
		t.Errorf("want 7 writes, got %d", got)
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got), rewrite it with -update:\n%s", path, diff)
	}
}

func TestListsAreNeverNull(t *testing.T) {
	backend := &fakeBackend{explained: Explanation{Service: "b"}, services: []Service{{Name: "a"}, {Name: "b", RealServers: []RealServer{{Address: "10.0.0.2:80"}}}}}
	socket := serve(t, backend, Options{}, defaultLimits)
	for _, rt := range (&Server{}).routes() {
		body, contentType := "", ""
		if strings.Contains(rt.path, "check") || strings.Contains(rt.path, "diff") {
			body, contentType = "{}", "application/json"
		}
		if strings.HasSuffix(rt.path, "/admin") {
			body, contentType = `{"mode": "none"}`, "application/json"
		}
		path := strings.NewReplacer("{name}", "b", "{server}", "10.0.0.2:80").Replace(rt.path)
		code, _, answer := request(t, socket, rt.method, path, contentType, body)
		if code != 200 || strings.Contains(answer, "null") {
			t.Errorf("%s %s: status %d: %s", rt.method, rt.path, code, answer)
		}
	}
	if backend.services[0].Flags != nil || backend.services[1].RealServers[0].Checks != nil {
		t.Error("the server wrote to what the backend returned")
	}
}

func TestNoServices(t *testing.T) {
	socket := serve(t, &fakeBackend{}, Options{}, defaultLimits)
	if _, _, got := request(t, socket, "GET", "/v1/services", "", ""); got != "[]\n" {
		t.Errorf("want [], got %q", got)
	}
}

func TestBackendErrors(t *testing.T) {
	tests := []struct {
		name string
		err  error
		code int
	}{
		{"any", errors.New("ENOBUFS"), 500},
		{"not found", fmt.Errorf("x: %w", ErrNotFound), 404},
		{"unavailable", fmt.Errorf("x: %w", ErrUnavailable), 503},
		{"canceled", fmt.Errorf("x: %w", context.Canceled), 503},
		{"too slow", fmt.Errorf("x: %w", context.DeadlineExceeded), 504},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			socket := serve(t, &fakeBackend{err: tt.err}, Options{}, defaultLimits)
			code, _, body := request(t, socket, "POST", "/v1/reload", "", "")
			want, _ := json.Marshal(Error{Error: tt.err.Error()})
			if code != tt.code || strings.TrimSpace(body) != string(want) {
				t.Errorf("want %d %s, got %d %s", tt.code, want, code, body)
			}
		})
	}
}

func TestWritesAreLogged(t *testing.T) {
	var log logBuffer
	socket := serve(t, fixture(), Options{Logger: log.logger()}, defaultLimits)
	request(t, socket, "GET", "/v1/status", "", "")
	request(t, socket, "POST", "/v1/reload", "", "")
	want := fmt.Sprintf(`msg="control request" request="POST /v1/reload" uid=%d pid=%d`, os.Getuid(), os.Getpid())
	if got := log.String(); !strings.Contains(got, want) || strings.Count(got, "\n") != 1 {
		t.Errorf("want one line with %s, got:\n%s", want, got)
	}
}
