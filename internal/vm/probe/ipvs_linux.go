// Package probe finds out whether the running kernel can run kernel tests.
//
// It speaks netlink by hand, so that what finds the kernel fit does not hang on
// the client that is to be tested there.
package probe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// IPVS returns nil when this process may program IPVS on the running kernel. Asking for the family makes the kernel load its module.
func IPVS() error {
	if os.Geteuid() != 0 {
		return errors.New("not root")
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_GENERIC)
	if err != nil {
		return fmt.Errorf("open generic netlink: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10}); err != nil {
		return err
	}
	if err := unix.Sendto(fd, familyRequest("IPVS"), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("ask for the IPVS family: %w", err)
	}
	b := make([]byte, 8192)
	n, _, err := unix.Recvfrom(fd, b, 0)
	if err != nil {
		return fmt.Errorf("ask for the IPVS family: %w", err)
	}
	return familyAnswer(b[:n])
}

// familyRequest asks for a generic netlink family by name (CTRL_CMD_GETFAMILY
// with CTRL_ATTR_FAMILY_NAME, include/uapi/linux/genetlink.h).
func familyRequest(name string) []byte {
	ne := binary.NativeEndian
	attr := append([]byte(name), 0)
	b := ne.AppendUint32(nil, 0) // length, set below
	b = ne.AppendUint16(b, unix.GENL_ID_CTRL)
	b = ne.AppendUint16(b, unix.NLM_F_REQUEST)
	b = ne.AppendUint32(b, 1) // sequence
	b = ne.AppendUint32(b, 0) // port
	b = append(b, unix.CTRL_CMD_GETFAMILY, 1, 0, 0)
	b = ne.AppendUint16(b, uint16(unix.SizeofNlAttr+len(attr)))
	b = ne.AppendUint16(b, unix.CTRL_ATTR_FAMILY_NAME)
	b = append(b, attr...)
	for len(b)%unix.NLMSG_ALIGNTO != 0 {
		b = append(b, 0)
	}
	ne.PutUint32(b, uint32(len(b)))
	return b
}

// familyAnswer returns nil when the kernel answered with a family.
func familyAnswer(b []byte) error {
	ne := binary.NativeEndian
	if len(b) < unix.SizeofNlMsghdr {
		return errors.New("short answer to the question for the IPVS family")
	}
	switch ne.Uint16(b[4:]) {
	case unix.GENL_ID_CTRL:
		return nil
	case unix.NLMSG_ERROR:
		if len(b) >= unix.SizeofNlMsghdr+4 {
			errno := syscall.Errno(-int32(ne.Uint32(b[unix.SizeofNlMsghdr:])))
			return fmt.Errorf("its kernel has no IPVS (is ip_vs loaded?): %w", errno)
		}
	}
	return errors.New("strange answer to the question for the IPVS family")
}
