package api

import (
	"errors"
	"fmt"
	"net"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxGroups is NGROUPS_MAX (include/uapi/linux/limits.h).
const maxGroups = 65536

// readPeer returns the credentials of the other end of a Unix socket.
func readPeer(c *net.UnixConn) (Peer, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return Peer{}, err
	}
	var peer Peer
	var sockErr error
	err = raw.Control(func(fd uintptr) {
		peer, sockErr = readPeerFD(int(fd))
	})
	return peer, errors.Join(err, sockErr)
}

func readPeerFD(fd int) (Peer, error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return Peer{}, fmt.Errorf("read peer credentials: %w", err)
	}
	groups, err := peerGroups(fd)
	if err != nil {
		return Peer{}, fmt.Errorf("read peer groups: %w", err)
	}
	return Peer{PID: int(cred.Pid), UID: int(cred.Uid), GID: int(cred.Gid), Groups: groups}, nil
}

// peerGroups reads SO_PEERGROUPS, which came with Linux 4.13. The unix package
// has no function for a socket option that is a list.
func peerGroups(fd int) ([]int, error) {
	buf := make([]uint32, 64)
	for {
		size := uint32(len(buf)) * 4
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&buf[0])), uintptr(unsafe.Pointer(&size)), 0)
		n := int(size / 4)
		switch {
		case errno == unix.ERANGE && n > len(buf) && n <= maxGroups:
			// The kernel said how much it has.
			buf = make([]uint32, n)
			continue
		case errno != 0:
			return nil, errno
		}
		groups := make([]int, 0, n)
		for _, g := range buf[:min(n, len(buf))] {
			groups = append(groups, int(g))
		}
		return groups, nil
	}
}
