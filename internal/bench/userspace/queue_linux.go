package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/lbd-project/lbd/internal/bench/rig"
	"github.com/lbd-project/lbd/internal/netnstest"
	"github.com/lbd-project/lbd/internal/nfqueue"
)

const queueTable = "marks"

// startQueue starts the least that decides in userspace: new connections are
// queued, each gets the next real server's mark, and a map makes the mark a real
// server. It counts nothing, and so is the limit for whatever decides there.
func startQueue(ctx context.Context, tb netnstest.TB, r *rig.Rig) (*running, error) {
	queues := runtime.NumCPU()
	if err := queueRules(ctx, r, queues); err != nil {
		return nil, err
	}
	// Each loop keeps a processor of the runtime to itself.
	before := runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS(before + queues)
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	errs := make([]error, queues)
	stop := sync.OnceValue(func() error {
		cancel()
		wg.Wait()
		runtime.GOMAXPROCS(before)
		return errors.Join(errs...)
	})
	tb.Cleanup(func() { _ = stop() })
	var turn atomic.Uint32
	answer := func(p *nfqueue.Packet) nfqueue.Verdict {
		return nfqueue.Verdict{Accept: true, SetMark: true, Mark: 1 + turn.Add(1)%servers}
	}
	for i := range queues {
		q, err := nfqueue.Open(nfqueue.Config{Number: uint16(i), GSO: true, Part: i, Parts: queues, NetNS: r.Balancer.FD()})
		if err != nil {
			return nil, err
		}
		wg.Go(func() {
			errs[i] = errors.Join(q.Run(ctx, nfqueue.Each(answer), func() bool { return false }), q.Close())
		})
	}
	return &running{func(syscall.Signal) error { return nil }, stop, func() string { return "" }}, nil
}

// queueRules are by iptables as far as they queue: nft has no word for NFQUEUE on
// a kernel without the queue expression.
func queueRules(ctx context.Context, r *rig.Rig, queues int) error {
	cmd := exec.CommandContext(ctx, "iptables", "-t", "mangle", "-A", "PREROUTING", "-d", rig.VIP().String(),
		"-p", "tcp", "--syn", "-m", "conntrack", "--ctstate", "NEW",
		"-j", "NFQUEUE", "--queue-balance", "0:"+strconv.Itoa(max(1, queues-1)), "--queue-cpu-fanout")
	if queues == 1 {
		cmd.Args = append(cmd.Args[:len(cmd.Args)-3], "--queue-num", "0")
	}
	if _, err := r.Balancer.Run(cmd); err != nil {
		return fmt.Errorf("iptables: %w", err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "table ip %s {\n\tchain prerouting {\n\t\ttype nat hook prerouting priority dstnat;\n", queueTable)
	b.WriteString("\t\tdnat to meta mark map {")
	for i := range servers {
		fmt.Fprintf(&b, " %d : %v,", 1+i, rig.Server(i))
	}
	b.WriteString(" }\n\t}\n}\n")
	return nft(ctx, r, b.String())
}
