package checktest

import (
	"net"
	"strconv"
	"syscall"
	"testing"
)

// Refusing returns an address of the loopback device that refuses connections: until
// the test ends, nobody listens there, nor can.
func Refusing(t testing.TB) string {
	t.Helper()
	syscall.ForkLock.RLock() // no program that starts now may keep it
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	self, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(self.(*syscall.SockaddrInet4).Port))
}
