package netnstest

import (
	"encoding/binary"
	"os"

	"golang.org/x/sys/unix"
)

// Unwrap does until the test ends what tunnel devices would, on kernels without
// them: it takes IP in IP, of either version in either, that is sent to an address
// of the namespace, and sends what is in there to the namespace itself.
func (n *NS) Unwrap() {
	n.t.Helper()
	for _, outer := range []int{unix.AF_INET, unix.AF_INET6} {
		for _, inner := range []int{unix.AF_INET, unix.AF_INET6} {
			n.unwrap(outer, inner)
		}
	}
}

func (n *NS) unwrap(outer, inner int) {
	n.t.Helper()
	proto, skip := unix.IPPROTO_IPIP, 20
	if inner == unix.AF_INET6 {
		proto = unix.IPPROTO_IPV6
	}
	if outer == unix.AF_INET6 {
		skip = 0 // raw sockets of IPv6 show no header
	}
	var in, out int
	err := n.Do(func() (err error) {
		if in, err = unix.Socket(outer, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, proto); err != nil {
			return err
		}
		if out, err = unix.Socket(inner, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW); err != nil {
			unix.Close(in)
		}
		return err
	})
	if err != nil {
		n.t.Fatalf("raw sockets to unwrap tunnels: %v", err)
	}
	f, done := os.NewFile(uintptr(in), "tunnel"), make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 128<<10)
		for {
			size, err := f.Read(b)
			if err != nil {
				return
			}
			p := b[min(skip, size):size]
			switch {
			case !fillChecksum(p):
			case inner == unix.AF_INET6:
				_ = unix.Sendto(out, p, 0, &unix.SockaddrInet6{Addr: [16]byte(p[24:40])})
			default:
				_ = unix.Sendto(out, p, 0, &unix.SockaddrInet4{Addr: [4]byte(p[16:20])})
			}
		}
	}()
	n.t.Cleanup(func() {
		f.Close()
		<-done
		unix.Close(out)
	})
}

// fillChecksum fills in the transport checksum of a packet, which a device would:
// virtual ones do not. It returns false for what is no packet.
func fillChecksum(p []byte) bool {
	var pseudo, body []byte
	var proto byte
	switch {
	case len(p) >= 20 && p[0]>>4 == 4 && len(p) >= int(p[0]&15)*4:
		proto, pseudo, body = p[9], p[12:20], p[int(p[0]&15)*4:]
	case len(p) >= 40 && p[0]>>4 == 6:
		proto, pseudo, body = p[6], p[8:40], p[40:]
	default:
		return false
	}
	at := map[byte]int{unix.IPPROTO_TCP: 16, unix.IPPROTO_UDP: 6}[proto]
	if at == 0 || len(body) < at+2 {
		return true
	}
	body[at], body[at+1] = 0, 0
	sum := uint32(proto) + uint32(len(body))
	for _, b := range [][]byte{pseudo, body} {
		for ; len(b) > 1; b = b[2:] {
			sum += uint32(binary.BigEndian.Uint16(b))
		}
		if len(b) == 1 {
			sum += uint32(b[0]) << 8
		}
		for sum>>16 != 0 {
			sum = sum&0xffff + sum>>16
		}
	}
	binary.BigEndian.PutUint16(body[at:], ^uint16(sum))
	return true
}
