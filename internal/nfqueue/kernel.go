package nfqueue

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// KernelQueue is what the kernel says of a bound queue.
type KernelQueue struct {
	Number uint16
	// PortID is the netlink port of the socket that holds it.
	PortID uint32
	// Waiting packets have no verdict yet.
	Waiting uint64
	// Dropped packets found the queue full; UserDropped ones the socket's buffer.
	// Neither counts packets that FailOpen let pass.
	Dropped, UserDropped uint64
}

var errQueueLine = errors.New("want 8 fields at least")

// parseKernel reads the text of /proc/net/netfilter/nfnetlink_queue, whose
// columns are queue number, port, waiting packets, copy mode, copy range,
// dropped, dropped at the socket, last id, and 1 (nfnetlink_queue.c, seq_show).
func parseKernel(r io.Reader) ([]KernelQueue, error) {
	var queues []KernelQueue
	s := bufio.NewScanner(r)
	for s.Scan() {
		q, err := parseQueueLine(s.Text())
		if err != nil {
			return nil, fmt.Errorf("parse line %q: %w", s.Text(), err)
		}
		queues = append(queues, q)
	}
	if err := s.Err(); err != nil {
		return nil, err
	}
	return queues, nil
}

func parseQueueLine(line string) (KernelQueue, error) {
	f := strings.Fields(line)
	if len(f) < 8 {
		return KernelQueue{}, errQueueLine
	}
	var errs [5]error
	number := func(i, field, bits int) uint64 {
		n, err := strconv.ParseUint(f[field], 10, bits)
		errs[i] = err
		return n
	}
	q := KernelQueue{
		Number:      uint16(number(0, 0, 16)),
		PortID:      uint32(number(1, 1, 32)),
		Waiting:     number(2, 2, 64),
		Dropped:     number(3, 5, 64),
		UserDropped: number(4, 6, 64),
	}
	if err := errors.Join(errs[:]...); err != nil {
		return KernelQueue{}, err
	}
	return q, nil
}
