package ipvs

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestKernelCloseOnExec pins that programs that the process starts inherit
// nothing of a client (D28: keepalived 623f6dbf).
func TestKernelCloseOnExec(t *testing.T) {
	before := openFiles(t)
	c, _ := kernelClient(t)
	mustTable(t, c)
	if _, err := c.Counts(t.Context()); err != nil {
		t.Fatal(err)
	}
	sockets := 0
	for fd, name := range openFiles(t) {
		if before[fd] == name {
			continue
		}
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("%s: flags %#x, %v; want close-on-exec", name, flags, err)
		}
		if strings.HasPrefix(name, "socket:") {
			sockets++
		}
	}
	if sockets == 0 {
		t.Error("the client has no socket")
	}
}

// openFiles returns the names of the open files by descriptor.
func openFiles(t *testing.T) map[int]string {
	t.Helper()
	links, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[int]string)
	for _, l := range links {
		fd, err := strconv.Atoi(filepath.Base(l))
		if err != nil {
			t.Fatal(err)
		}
		// The folder that Glob reads is closed by now.
		if name, err := os.Readlink(l); err == nil {
			files[fd] = name
		}
	}
	return files
}
