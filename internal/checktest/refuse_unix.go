//go:build unix

package checktest

import (
	"net/netip"
	"os"
	"syscall"
	"testing"
)

// Refuse returns an address of the loopback device that refuses TCP connections
// until the test ends. Its port is taken: a port that was free a moment ago may be
// somebody else's now.
func Refuse(t testing.TB) string {
	t.Helper()
	syscall.ForkLock.RLock()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(os.NewSyscallError("socket", err))
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(os.NewSyscallError("bind", err))
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(os.NewSyscallError("getsockname", err))
	}
	a := name.(*syscall.SockaddrInet4)
	return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port)).String()
}
