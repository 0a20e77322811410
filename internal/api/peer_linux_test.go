package api

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestReadPeer(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got, err := readPeer(s.(*net.UnixConn))
	if err != nil {
		t.Fatal(err)
	}
	groups, err := os.Getgroups()
	if err != nil {
		t.Fatal(err)
	}
	if got.PID != os.Getpid() || got.UID != os.Getuid() || got.GID != os.Getgid() || !slices.Equal(groups, got.Groups) {
		t.Errorf("want pid %d, uid %d, gid %d, groups %v; got %+v", os.Getpid(), os.Getuid(), os.Getgid(), groups, got)
	}
}

// More groups than the first buffer has room for.
func TestReadPeerWithManyGroups(t *testing.T) {
	if os.Geteuid() != 0 {
		groups, err := os.Getgroups()
		if err != nil || os.Getenv(manyGroups) != "" && len(groups) != 300 {
			t.Fatalf("want 300 groups, got %d, %v", len(groups), err)
		}
		TestReadPeer(t)
		return
	}
	t.Setenv(manyGroups, "1")
	groups := make([]uint32, 300)
	for i := range groups {
		groups[i] = uint32(20000 + i)
	}
	dropPrivileges(t, "TestReadPeerWithManyGroups", groups...)
}

const manyGroups = "LBD_TEST_MANY_GROUPS"

func TestAllowGroup(t *testing.T) {
	const group = 990
	self := os.Geteuid()
	tests := []struct {
		name string
		peer Peer
		want bool
	}{
		{"root", Peer{UID: 0, GID: 5}, true},
		{"the server's own user", Peer{UID: self, GID: 5}, true},
		{"primary group", Peer{UID: 4711, GID: group}, true},
		{"supplementary group", Peer{UID: 4711, GID: 5, Groups: []int{6, group}}, true},
		{"stranger", Peer{UID: 4711, GID: 5, Groups: []int{6}}, false},
		{"root's group only", Peer{UID: 4711, GID: 0, Groups: []int{0}}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := AllowGroup(group)(tt.peer); got != tt.want {
				t.Errorf("want %v, got %v", tt.want, got)
			}
		})
	}
}

func TestRefusedPeer(t *testing.T) {
	var log logBuffer
	backend := fixture()
	var asked Peer
	socket := serve(t, backend, Options{Logger: log.logger(), Allow: func(p Peer) bool {
		asked = p
		return false
	}}, defaultLimits)
	code, _, body := request(t, socket, "POST", "/v1/reload", "", "")
	if code != 403 || !strings.Contains(body, "may not use this socket") {
		t.Errorf("want 403, got %d %s", code, body)
	}
	if backend.written() != 0 {
		t.Error("the backend was told to reload")
	}
	if asked.PID != os.Getpid() {
		t.Errorf("want a decision on pid %d, got %+v", os.Getpid(), asked)
	}
	if !strings.Contains(log.String(), "control request refused") {
		t.Errorf("no log line: %s", log.String())
	}
}

// A connection without credentials is refused even where everybody is allowed.
func TestUnknownPeer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(fixture(), Options{Allow: func(Peer) bool { return true }})
	stop := run(t, s, l)
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got := exchange(t, c, "GET /v1/status HTTP/1.1\r\nHost: lbd\r\n\r\n")
	if !strings.HasPrefix(got, "HTTP/1.1 403 ") {
		t.Errorf("want 403, got %q", got)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
