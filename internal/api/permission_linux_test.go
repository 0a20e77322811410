package api

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// nobody is a user that owns nothing here.
const nobody = 65534

// dropPrivileges runs one test of this binary again as nobody, with the groups,
// and fails if it fails or does not run.
func dropPrivileges(t *testing.T, test string, groups ...uint32) {
	t.Helper()
	// The working directory and the binary may be out of nobody's reach.
	dir, err := os.MkdirTemp("/tmp", "lbd-api-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "api.test")
	if err := os.WriteFile(bin, self, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	work := filepath.Join(dir, "work")
	if err := os.Mkdir(work, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(work, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, "-test.v", "-test.run", "^"+test+"$")
	cmd.Dir = work
	cmd.Env = append(os.Environ(), "TMPDIR="+work)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody, Groups: groups}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+test) {
		t.Errorf("as nobody: %v\n%s", err, out)
	}
}

// An unknown group must not leave a socket behind.
func TestListenCannotGiveTheGroup(t *testing.T) {
	if os.Geteuid() == 0 {
		// Root may give any group away.
		dropPrivileges(t, "TestListenCannotGiveTheGroup")
		return
	}
	socket := filepath.Join(t.TempDir(), "lbd.sock")
	l, err := Listen(socket, 0)
	if err == nil {
		l.Close()
		t.Fatal("no error")
	}
	if !os.IsPermission(err) && !strings.Contains(err.Error(), "not permitted") {
		t.Errorf("want a permission error, got: %v", err)
	}
	if _, err := os.Lstat(socket); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}
}

func TestClientWithoutPermission(t *testing.T) {
	if os.Geteuid() == 0 {
		dropPrivileges(t, "TestClientWithoutPermission")
		return
	}
	dir := t.TempDir()
	for _, tt := range []struct {
		name string
		mode fs.FileMode
		want string
	}{
		// The owner is not let in even where the group is.
		{"owner only", 0o000, "run as root"},
		{"group", 0o060, "run as root or as a member of the group nogroup"},
	} {
		socket := filepath.Join(dir, strings.ReplaceAll(tt.name, " ", "-"))
		l, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if err := os.Chmod(socket, tt.mode); err != nil {
			t.Fatal(err)
		}
		_, err = NewClient(socket, 20*time.Second).Status(t.Context())
		want := "no permission to use " + socket + ": " + tt.want
		if err == nil || err.Error() != want || !errors.Is(err, fs.ErrPermission) || errors.Is(err, ErrNotRunning) {
			t.Errorf("%s: want %s\ngot %v", tt.name, want, err)
		}
	}
}
