package api

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestListenModeAndGroup(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "lbd.sock")
	// Whatever the umask is, the mode is the same.
	defer syscall.Umask(syscall.Umask(0))
	gid := os.Getgid()
	if os.Geteuid() == 0 {
		gid = 12345
	}
	l, err := Listen(socket, gid)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(socket)
	if err != nil {
		t.Fatal(err)
	}
	if want := fs.ModeSocket | 0o660; info.Mode() != want {
		t.Errorf("want mode %v, got %v", want, info.Mode())
	}
	if got := int(info.Sys().(*syscall.Stat_t).Gid); got != gid {
		t.Errorf("want group %d, got %d", gid, got)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(socket); !os.IsNotExist(err) {
		t.Errorf("the socket is still there after Close: %v", err)
	}
}

// The file must be closed to others from bind on, before Listen can change it.
func TestSocketIsBornClosed(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "lbd.sock")
	defer syscall.Umask(syscall.Umask(0))
	lc := net.ListenConfig{Control: closeMode}
	l, err := lc.Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	info, err := os.Stat(socket)
	if err != nil {
		t.Fatal(err)
	}
	if want := fs.ModeSocket | 0o600; info.Mode() != want {
		t.Errorf("want mode %v, got %v", want, info.Mode())
	}
}

// deadSocket leaves the file of a listener that is gone, as kill -9 does.
func deadSocket(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
}

func TestListenReplacesTheSocketOfADeadServer(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "lbd.sock")
	deadSocket(t, socket)
	l, err := Listen(socket, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

func TestListenRefuses(t *testing.T) {
	tests := []struct {
		name    string
		prepare func(t *testing.T, dir string) (socket string)
		want    string
	}{
		{"a live server", func(t *testing.T, dir string) string {
			socket := filepath.Join(dir, "lbd.sock")
			l, err := net.Listen("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
			return socket
		}, "another process answers on it"},
		{"a file", func(t *testing.T, dir string) string {
			file := filepath.Join(dir, "lbd.sock")
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return file
		}, "exists and is not a socket"},
		{"a symlink to a dead socket", func(t *testing.T, dir string) string {
			link := filepath.Join(dir, "lbd.sock")
			deadSocket(t, filepath.Join(dir, "other.sock"))
			if err := os.Symlink("other.sock", link); err != nil {
				t.Fatal(err)
			}
			return link
		}, "exists and is not a socket"},
		{"no directory", func(t *testing.T, dir string) string {
			return filepath.Join(dir, "none", "lbd.sock")
		}, "no such file or directory"},
		{"a file as directory", func(t *testing.T, dir string) string {
			file := filepath.Join(dir, "file")
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return filepath.Join(file, "lbd.sock")
		}, "is not a directory"},
		{"a directory of everybody", func(t *testing.T, dir string) string {
			if err := os.Chmod(dir, fs.ModeSticky|0o777); err != nil {
				t.Fatal(err)
			}
			return filepath.Join(dir, "lbd.sock")
		}, "everybody may write to"},
		{"a name that is too long", func(t *testing.T, dir string) string {
			return filepath.Join(dir, strings.Repeat("x", 108))
		}, "invalid argument"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			socket := tt.prepare(t, t.TempDir())
			before, _ := os.Lstat(socket)
			l, err := Listen(socket, -1)
			if err == nil {
				l.Close()
				t.Fatal("no error")
			}
			if !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "control socket") {
				t.Errorf("want %q, got: %v", tt.want, err)
			}
			if after, _ := os.Lstat(socket); (before == nil) != (after == nil) {
				t.Errorf("the file was %v and is %v", before, after)
			}
		})
	}
}
