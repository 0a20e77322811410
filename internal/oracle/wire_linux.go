package oracle

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// answerTimeout is how long the kernel may take for a frame, in seconds. It is
// only met by a wire that is broken.
const answerTimeout = 10

// wire sends frames to the balancer and reads what comes out at the real
// servers' end. It must be used from threads bound to one and the same processor:
// the kernel then handles frames in the order in which they were sent.
type wire struct {
	in, out int
	frame   []byte
	buf     []byte
	// fence is the number of the last fence sent.
	fence uint16
	// pending tells that segments were sent since a fence came out.
	pending bool
}

// openWire opens the ends of a wire in the namespace of the thread.
func openWire(clientEnd, serverEnd string) (*wire, error) {
	in, err := packetSocket(clientEnd, 0)
	if err != nil {
		return nil, err
	}
	out, err := packetSocket(serverEnd, unix.ETH_P_ALL)
	if err != nil {
		unix.Close(in)
		return nil, err
	}
	w := &wire{in: in, out: out, buf: make([]byte, 256)}
	if err := w.attach(); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

func (w *wire) close() {
	unix.Close(w.in)
	unix.Close(w.out)
}

// packetSocket opens a packet socket on a device; protocol 0 receives nothing.
func packetSocket(dev string, proto uint16) (int, error) {
	ifi, err := net.InterfaceByName(dev)
	if err != nil {
		return 0, err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open packet socket: %w", err)
	}
	be := proto<<8 | proto>>8
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: be, Ifindex: ifi.Index}); err != nil {
		unix.Close(fd)
		return 0, fmt.Errorf("bind packet socket to %s: %w", dev, err)
	}
	return fd, nil
}

// attach lets only fences and first segments of connections through, and bounds
// the wait for them.
func (w *wire) attach() error {
	const (
		ldh   = unix.BPF_LD | unix.BPF_H | unix.BPF_ABS
		ldb   = unix.BPF_LD | unix.BPF_B | unix.BPF_ABS
		jeq   = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		ret   = unix.BPF_RET | unix.BPF_K
		flags = 13
	)
	prog := []unix.SockFilter{
		{Code: ldh, K: 12},
		{Code: jeq, K: etherIPv4, Jt: 0, Jf: 5},
		{Code: ldb, K: etherLen + 9}, // protocol
		{Code: jeq, K: protoUDP, Jt: 6, Jf: 0},
		{Code: jeq, K: protoTCP, Jt: 0, Jf: 6},
		{Code: ldb, K: etherLen + ipv4Len + flags},
		{Code: jeq, K: flagSYN, Jt: 3, Jf: 4},
		{Code: jeq, K: etherIPv6, Jt: 0, Jf: 3},
		{Code: ldb, K: etherLen + ipv6Len + flags},
		{Code: jeq, K: flagSYN, Jt: 0, Jf: 1},
		{Code: ret, K: 256},
		{Code: ret, K: 0},
	}
	fprog := &unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	if err := unix.SetsockoptSockFprog(w.out, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, fprog); err != nil {
		return fmt.Errorf("attach filter: %w", err)
	}
	if err := unix.SetsockoptTimeval(w.out, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: answerTimeout}); err != nil {
		return fmt.Errorf("set receive timeout: %w", err)
	}
	return nil
}

// send sends a segment of a flow.
func (w *wire) send(f flow, flags byte) error {
	w.frame = f.segment(w.frame[:0], flags)
	if _, err := unix.Write(w.in, w.frame); err != nil {
		return fmt.Errorf("send segment: %w", err)
	}
	w.pending = true
	return nil
}

// open sends the first segment of a flow and returns the number of the link
// address that it came out for; refused tells that it did not.
func (w *wire) open(f flow) (n uint16, refused bool, err error) {
	if err := w.send(f, flagSYN); err != nil {
		return 0, false, err
	}
	n, err = w.receive(f, unix.MSG_DONTWAIT)
	if !errors.Is(err, unix.EAGAIN) {
		return n, false, err
	}
	// Nothing yet. What is sent now comes out after it, if it comes out.
	if err := w.sendFence(); err != nil {
		return 0, false, err
	}
	n, err = w.receive(f, 0)
	if errors.Is(err, errFence) {
		w.pending = false
		return 0, true, nil
	}
	return n, false, err
}

// barrier waits until the kernel has handled every segment sent: on a busy
// machine it lets them queue. An edit that overtook one would change what it does.
func (w *wire) barrier() error {
	if !w.pending {
		return nil
	}
	if err := w.sendFence(); err != nil {
		return err
	}
	if _, err := w.receive(flow{}, 0); !errors.Is(err, errFence) {
		return fmt.Errorf("barrier: %w", err)
	}
	w.pending = false
	return nil
}

func (w *wire) sendFence() error {
	w.fence++
	fence := flow{netip.AddrPortFrom(fenceFrom, w.fence), netip.AddrPortFrom(fenceTo, w.fence)}
	w.frame = fence.datagram(w.frame[:0])
	if _, err := unix.Write(w.in, w.frame); err != nil {
		return fmt.Errorf("send fence: %w", err)
	}
	return nil
}

// errFence is the end of waiting: the last fence has come out.
var errFence = errors.New("fence")

// receive reads frames until the first segment of f or the last fence.
func (w *wire) receive(f flow, flags int) (uint16, error) {
	for {
		n, _, err := unix.Recvfrom(w.out, w.buf, flags)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("receive: %w", err)
		}
		b := w.buf[:n]
		if len(b) < etherLen+ipv4Len+8 {
			return 0, fmt.Errorf("frame of %d bytes", n)
		}
		ports := etherLen + ipv4Len
		if binary.BigEndian.Uint16(b[12:]) == etherIPv6 {
			ports = etherLen + ipv6Len
		} else if b[etherLen+9] == protoUDP {
			if flags&unix.MSG_DONTWAIT == 0 && binary.BigEndian.Uint16(b[ports:]) == w.fence {
				return 0, errFence
			}
			continue // of an earlier wait, which a late segment ended
		}
		if len(b) < ports+tcpLen || binary.BigEndian.Uint16(b[ports:]) != f.src.Port() {
			return 0, fmt.Errorf("frame of another flow than %v: %x", f.src, b)
		}
		return binary.BigEndian.Uint16(b[4:]), nil
	}
}
