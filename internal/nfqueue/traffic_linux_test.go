package nfqueue

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os/exec"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/internal/netnstest"
)

// testBalance shares packets among two queues: both get some, and each client's
// all go to one.
func testBalance(t *testing.T, ns *netnstest.NS, r rule) {
	const clients, each = 64, 3
	r.queues = 2
	u := newUDP(t, ns, "127.0.0.1", 0)
	for i := range uint16(2) {
		q := open(t, ns, Config{Number: testQueue + i})
		run(t, q, func(*Packet) Verdict { return Verdict{Accept: true, SetMark: true, Mark: uint32(i + 1)} })
	}
	r.add(t)
	seen := map[string]uint32{}
	count := map[uint32]int{}
	for i := range clients {
		var d net.Dialer
		client := fmt.Sprintf("127.0.1.%d", i+1)
		d.LocalAddr = &net.UDPAddr{IP: net.ParseIP(client)}
		var c net.Conn
		err := ns.Do(func() (err error) { c, err = d.Dial("udp", u.recv.LocalAddr().String()); return err })
		if err != nil {
			t.Fatal(err)
		}
		for range each {
			if _, err := c.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			_, queue := u.read()
			if before, ok := seen[client]; ok && before != queue {
				t.Errorf("%s: in queue %d, then %d", client, before, queue)
			}
			seen[client] = queue
			count[queue]++
		}
		c.Close()
	}
	if count[1] == 0 || count[2] == 0 || count[1]+count[2] != clients*each {
		t.Errorf("packets of each queue: %v", count)
	}
}

// setMTU makes lo fragment and segment as real devices do.
func setMTU(t *testing.T, ns *netnstest.NS) {
	t.Helper()
	if _, err := ns.Run(exec.Command("ip", "link", "set", "lo", "mtu", "1500")); err != nil {
		t.Fatal(err)
	}
}

// testFragments sends a datagram in three fragments. Where conntrack is at work,
// it comes as one packet.
func testFragments(t *testing.T, ns *netnstest.NS, r rule) {
	setMTU(t, ns)
	u := newUDP(t, ns, "127.0.0.1", 1)
	q := open(t, ns, Config{})
	r.conntrack = true
	r.add(t)
	lengths := make(chan int, 8)
	run(t, q, func(p *Packet) Verdict {
		lengths <- p.Length
		if len(p.Payload) != defaultCopyRange {
			t.Errorf("%d bytes of %d copied", len(p.Payload), p.Length)
		}
		return markAll(p)
	})
	data := bytes.Repeat([]byte("0123456789"), 400)
	u.write(data)
	if got, mark := u.read(); !bytes.Equal(got, data) || mark != 0x101 {
		t.Errorf("got %d bytes with mark %#x", len(got), mark)
	}
	if n := <-lengths; n != 4028 || len(lengths) != 0 {
		t.Errorf("want one packet of 4028 bytes, got %d and %d more", n, len(lengths))
	}
}

// testGSO sends a stream: with GSO its packets come larger than the device's MTU,
// without in segments.
func testGSO(t *testing.T, ns *netnstest.NS, r rule) {
	setMTU(t, ns)
	r.protocol = unix.IPPROTO_TCP
	r.add(t)
	for _, gso := range []bool{false, true} {
		q := open(t, ns, Config{GSO: gso})
		var mu sync.Mutex
		longest := 0
		stop := run(t, q, func(p *Packet) Verdict {
			mu.Lock()
			defer mu.Unlock()
			longest = max(longest, p.Length)
			return markAll(p)
		})
		stream(t, ns, 1<<20)
		stop()
		if err := q.Close(); err != nil {
			t.Error(err)
		}
		mu.Lock()
		if large := longest > 1500; large != gso {
			t.Errorf("GSO %v: longest packet has %d bytes", gso, longest)
		}
		mu.Unlock()
	}
}

// stream sends n bytes over a TCP connection to the rule's port.
func stream(t *testing.T, ns *netnstest.NS, n int) {
	t.Helper()
	addr := fmt.Sprintf("127.0.0.1:%d", testPort)
	ln := ns.Listen("tcp", addr)
	defer ln.Close()
	got := make(chan []byte, 1)
	go func() {
		defer close(got)
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(patience))
		b, _ := io.ReadAll(c)
		got <- b
	}()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := ns.DialContext(ctx, "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	data := bytes.Repeat([]byte("0123456789abcdef"), n/16)
	c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write(data); err != nil {
		t.Error(err)
	}
	c.Close()
	if b := <-got; !bytes.Equal(b, data) {
		t.Errorf("%d of %d bytes arrived", len(b), len(data))
	}
}
