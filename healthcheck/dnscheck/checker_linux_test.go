package dnscheck

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/internal/checktest"
	"github.com/lbd-project/lbd/internal/filetest"
)

// short is the time of a check that waits for what does not come.
const short = 200 * time.Millisecond

// run makes one check. A busy machine must not fail one that gets an answer.
func run(t testing.TB, ctx context.Context, c Check, to netip.AddrPort) (healthcheck.Result, error) {
	t.Helper()
	k, err := c.NewChecker(to, healthcheck.Env{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return k.Check(ctx)
}

// TestTypes asks a server that the library makes for records of each type, on
// both transports and address families.
func TestTypes(t *testing.T) {
	label63 := strings.Repeat("a", 63)
	tests := []struct {
		check  Check
		detail string
	}{
		{Check{}, "NOERROR, 1 answer"},
		{Check{Name: "."}, "NOERROR, 1 answer"},
		{Check{Name: "example.org", Type: 1, Answers: []string{"192.0.2.2", "192.0.2.1"}, Exact: true}, "NOERROR, 2 answers"},
		{Check{Name: "example.org.", Type: 1, Answers: []string{"192.0.2.2"}}, "NOERROR, 2 answers"},
		{Check{Name: "EXAMPLE.org", Type: 28, Answers: []string{"2001:db8::1"}}, "NOERROR, 1 answer"},
		{Check{Name: "example.org", Type: 2, Answers: []string{"ns2.example.org", "ns1.example.org"}, Exact: true}, "NOERROR, 2 answers"},
		{Check{Name: "example.org", Type: 15, Answers: []string{"10 MAIL.example.org"}}, "NOERROR, 1 answer"},
		{Check{Name: "example.org", Type: 16, Answers: []string{"v=spf1 -all"}}, "NOERROR, 1 answer"},
		{Check{Name: "example.org", Type: 257, Answers: []string{`0 issue "ca.example.net"`}}, "NOERROR, 1 answer"},
		{Check{Name: "example.org", Type: 255}, "NOERROR, 2 answers"},
		{Check{Name: "example.org", Type: 65399, Answers: []string{`\# 2 ABCD`}}, "NOERROR, 1 answer"},
		{Check{Name: "www.example.org", Type: 1, Answers: []string{"192.0.2.1"}, Exact: true}, "NOERROR, 1 answer"},
		{Check{Name: "www.example.org", Type: 5, Answers: []string{"example.org"}, Exact: true}, "NOERROR, 1 answer"},
		{Check{Name: "_sip._udp.example.org", Type: 33, Answers: []string{"0 5 5060 sip.example.org"}}, "NOERROR, 1 answer"},
		{Check{Name: "1.2.0.192.in-addr.arpa", Type: 12, Answers: []string{"example.org."}}, "NOERROR, 1 answer"},
		{Check{Name: label63 + ".example.org", Type: 1, Answers: []string{"192.0.2.63"}}, "NOERROR, 1 answer"},
		{Check{Name: longest, Type: 1, Answers: []string{"192.0.2.255"}}, "NOERROR, 1 answer"},
		{Check{Name: strings.TrimSuffix(longest, "."), Type: 1, Answers: []string{"192.0.2.255"}}, "NOERROR, 1 answer"},
		{Check{Name: "example.org", Type: 1, NoRecursion: true}, "NOERROR, 2 answers"},
		{Check{Name: "absent.example.org", Type: 1, Rcodes: []int{3}}, "NXDOMAIN, no answers"},
		// 100 records: 1,6 KB, too much for 512 bytes.
		{Check{Name: "big.example.org", Type: 1, Answers: []string{"192.0.2.99"}}, "NOERROR, 100 answers"},
	}
	for _, ip := range []string{"127.0.0.1", "::1"} {
		pc, ln, to := both(t, ip)
		serve(t, pc, ln, serveZone)
		for _, transport := range []string{UDP, TCP} {
			for _, tt := range tests {
				tt.check.Transport = transport
				r, err := run(t, t.Context(), tt.check, to)
				if err != nil || r.Detail != tt.detail || r.Latency <= 0 {
					t.Errorf("%s: want %q, got %+v, %v", tt.check.Key(), tt.detail, r, err)
				}
			}
		}
	}
}

// TestQueryAsSent looks at what a server gets.
func TestQueryAsSent(t *testing.T) {
	pc, ln, to := both(t, "127.0.0.1")
	asked := make(chan string, 1)
	serve(t, pc, ln, func(w dns.ResponseWriter, ask *dns.Msg) {
		asked <- fmt.Sprintf("%s RD=%t EDNS=%t", &ask.Question[0], ask.RecursionDesired, ask.IsEdns0() != nil)
		serveZone(w, ask)
	})
	tests := []struct {
		check Check
		want  string
	}{
		{Check{}, ";.\tIN\t SOA RD=true EDNS=false"},
		{Check{Name: "example.org", Type: 1, NoRecursion: true}, ";example.org.\tIN\t A RD=false EDNS=false"},
	}
	for _, tt := range tests {
		for _, transport := range []string{UDP, TCP} {
			tt.check.Transport = transport
			if _, err := run(t, t.Context(), tt.check, to); err != nil {
				t.Fatal(err)
			}
			if got := <-asked; got != tt.want {
				t.Errorf("%s: want %q, got %q", transport, tt.want, got)
			}
		}
	}
}

// TestTruncated asks again over TCP, also where the reply was cut in the middle
// of a record, and fails where nobody answers there.
func TestTruncated(t *testing.T) {
	for _, answers := range []bool{true, false} {
		pc, ln, to := both(t, "127.0.0.1")
		script(t, pc, func(ask []byte) [][]byte {
			r := goodReply(ask)
			r[2] |= 2 // TC
			return [][]byte{r[:len(r)-3]}
		})
		if answers {
			serve(t, nil, ln, serveZone)
		} else {
			ln.Close()
		}
		r, err := run(t, t.Context(), Check{Name: "example.org", Type: 1}, to)
		if answers && (err != nil || r.Detail != "NOERROR, 2 answers") {
			t.Errorf("want the answer over TCP, got %+v, %v", r, err)
		}
		want := fmt.Sprintf("query example.org. A over tcp: connect %v: connection refused", to)
		if !answers && checktest.Text(err) != want {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

// TestTruncatedDeadline has one deadline for both transports.
func TestTruncatedDeadline(t *testing.T) {
	pc, ln, to := both(t, "127.0.0.1")
	script(t, pc, func(ask []byte) [][]byte { ask[2] |= 0x82; return [][]byte{ask} })
	scriptTCP(t, ln, func(c net.Conn) {
		readQuery(c)
		c.Read(make([]byte, 1)) // until the checker hangs up
	})
	want := fmt.Sprintf("query example.org. A at %v over tcp: no answer in time: context deadline exceeded", to)
	_, err := checktest.RunUntil(t, Check{Name: "example.org", Type: 1}, healthcheck.Env{}, to.String(), short, want)
	if checktest.Text(err) != want || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("want %q, got %v", want, err)
	}
}

func TestTruncatedTCP(t *testing.T) {
	_, ln, to := both(t, "127.0.0.1")
	scriptTCP(t, ln, func(c net.Conn) {
		r := goodReply(readQuery(c))
		r[2] |= 2
		c.Write(append([]byte{0, byte(len(r))}, r...))
	})
	_, err := run(t, t.Context(), Check{Transport: TCP, Name: "example.org", Type: 1}, to)
	want := fmt.Sprintf("query example.org. A at %v over tcp: the reply is truncated", to)
	if checktest.Text(err) != want {
		t.Errorf("want %q, got %v", want, err)
	}
}

// TestIgnored has other messages before the reply, or in its place.
func TestIgnored(t *testing.T) {
	change := func(f func(r []byte)) func(ask []byte) []byte {
		return func(ask []byte) []byte {
			r := goodReply(ask)
			f(r)
			return r
		}
	}
	tests := []struct {
		name   string
		make   func(ask []byte) []byte
		reason string
	}{
		{"id", change(func(r []byte) { r[1]++ }), "another id"},
		{"id in the other order", change(func(r []byte) { r[0], r[1] = r[1]+1, r[0] }), "another id"},
		{"query", func(ask []byte) []byte { return ask }, "a query"},
		{"name", change(func(r []byte) { r[13] = 'x' }), "another question"},
		{"type", change(func(r []byte) { r[26] = 28 }), "another question"},
		{"empty", func([]byte) []byte { return nil }, "a message of 0 bytes"},
		{"one byte", func(ask []byte) []byte { return ask[:1] }, "a message of 1 bytes"},
	}
	for _, tt := range tests {
		c := Check{Name: "example.org", Type: 1, Answers: []string{"192.0.2.1"}}
		pc, _, to := both(t, "127.0.0.1")
		script(t, pc, func(ask []byte) [][]byte { return [][]byte{tt.make(ask), tt.make(ask), goodReply(ask)} })
		if _, err := run(t, t.Context(), c, to); err != nil {
			t.Errorf("%s, then the reply: %v", tt.name, err)
		}
		pc, _, to = both(t, "127.0.0.1")
		script(t, pc, func(ask []byte) [][]byte { return [][]byte{tt.make(ask), tt.make(ask)} })
		want := fmt.Sprintf("query example.org. A at %v over udp: no answer in time: context deadline exceeded (ignored 2, the last one: %s)", to, tt.reason)
		_, err := checktest.RunUntil(t, c, healthcheck.Env{}, to.String(), short, want)
		if checktest.Text(err) != want || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s only: want %q, got %v", tt.name, want, err)
		}
		_, ln, to := both(t, "127.0.0.1")
		scriptTCP(t, ln, func(conn net.Conn) {
			ask := readQuery(conn)
			for _, r := range [][]byte{tt.make(ask), goodReply(ask)} {
				// A byte at a time.
				for _, b := range append([]byte{0, byte(len(r))}, r...) {
					conn.Write([]byte{b})
				}
			}
			conn.Read(make([]byte, 1))
		})
		c.Transport = TCP
		if _, err := run(t, t.Context(), c, to); err != nil {
			t.Errorf("%s, then the reply, over TCP: %v", tt.name, err)
		}
	}
}

// TestIgnoredFlood ends before the deadline: a server that sends messages all the
// time must not keep a processor busy.
func TestIgnoredFlood(t *testing.T) {
	_, ln, to := both(t, "127.0.0.1")
	scriptTCP(t, ln, func(c net.Conn) {
		readQuery(c)
		b := make([]byte, 1<<16) // messages of no byte
		for {
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	})
	_, err := run(t, t.Context(), Check{Transport: TCP}, to)
	want := fmt.Sprintf("query . SOA at %v over tcp: too many messages that are no reply (ignored 1000, the last one: a message of 0 bytes)", to)
	if checktest.Text(err) != want {
		t.Errorf("want %q, got %v", want, err)
	}
}

// TestWrongSource has somebody else know all of the query: what does not come from
// the target does not even reach the checker.
func TestWrongSource(t *testing.T) {
	pc, _, to := both(t, "127.0.0.1")
	other, _, _ := both(t, "127.0.0.1")
	go func() {
		b := make([]byte, 512)
		for {
			n, from, err := pc.ReadFrom(b)
			if err != nil {
				return
			}
			if _, err := other.WriteTo(goodReply(b[:n]), from); err != nil {
				t.Error(err)
			}
		}
	}()
	want := fmt.Sprintf("query example.org. A at %v over udp: no answer in time: context deadline exceeded", to)
	_, err := checktest.RunUntil(t, Check{Name: "example.org", Type: 1}, healthcheck.Env{}, to.String(), short, want)
	if checktest.Text(err) != want {
		t.Errorf("want %q, got %v", want, err)
	}
}

// TestBroken has replies that end the check at once, with the reason.
func TestBroken(t *testing.T) {
	tests := []struct {
		name, transport string
		reply           func(ask []byte) []byte // over TCP with the length
		want            string
	}{
		{"loop", UDP, func(ask []byte) []byte {
			r := goodReply(ask)
			r[12], r[13] = 0xc0, 12
			return r
		}, "broken reply: question: dns: too many compression pointers"},
		{"counts lie", UDP, func(ask []byte) []byte {
			r := goodReply(ask)
			r[6], r[7] = 0xff, 0xff
			return r
		}, "broken reply: fewer records than announced"},
		{"cut", UDP, func(ask []byte) []byte { r := goodReply(ask); return r[:len(r)-1] }, "broken reply: record cut short"},
		{"longer than a buffer", UDP, func(ask []byte) []byte { return append(goodReply(ask), make([]byte, 8000)...) }, "a reply of more than 4096 bytes"},
		{"closed early", TCP, func([]byte) []byte { return nil }, "the server closed the connection before its reply was complete"},
		{"closed in the length", TCP, func([]byte) []byte { return []byte{0} }, "the server closed the connection before its reply was complete"},
		{"closed in the message", TCP, func(ask []byte) []byte { return append([]byte{0xff, 0xff}, goodReply(ask)...) }, "the server closed the connection before its reply was complete"},
		{"another protocol", TCP, func([]byte) []byte { return []byte("HTTP/1.1 400 Bad Request\r\n\r\n") }, "the server closed the connection before its reply was complete"},
	}
	for _, tt := range tests {
		pc, ln, to := both(t, "127.0.0.1")
		script(t, pc, func(ask []byte) [][]byte { return [][]byte{tt.reply(ask)} })
		scriptTCP(t, ln, func(c net.Conn) { c.Write(tt.reply(readQuery(c))) })
		r, err := run(t, t.Context(), Check{Transport: tt.transport, Name: "example.org", Type: 1}, to)
		want := fmt.Sprintf("query example.org. A at %v over %s: %s", to, tt.transport, tt.want)
		if checktest.Text(err) != want || errors.Is(err, healthcheck.ErrLocal) || r.Latency <= 0 {
			t.Errorf("%s (-want +got):\n%s", tt.name, cmp.Diff(want, checktest.Text(err)))
		}
	}
}

func TestRefused(t *testing.T) {
	for _, ip := range []string{"127.0.0.1", "::1"} {
		pc, ln, to := both(t, ip)
		pc.Close()
		ln.Close()
		for transport, text := range map[string]string{
			UDP: "query . SOA at %[1]v over udp: read: connection refused",
			TCP: "query . SOA over tcp: connect %[1]v: connection refused",
		} {
			_, err := run(t, t.Context(), Check{Transport: transport}, to)
			want := fmt.Sprintf(text, to)
			if checktest.Text(err) != want || !errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, healthcheck.ErrLocal) {
				t.Errorf("want %q, got %v", want, err)
			}
		}
	}
}

// TestCancel ends a check in every wait.
func TestCancel(t *testing.T) {
	pc, ln, to := both(t, "127.0.0.1")
	asked := make(chan struct{}, 2)
	script(t, pc, func([]byte) [][]byte { asked <- struct{}{}; return nil })
	scriptTCP(t, ln, func(c net.Conn) {
		readQuery(c)
		asked <- struct{}{}
		c.Read(make([]byte, 1))
	})
	for _, transport := range []string{UDP, TCP} {
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-asked; cancel() }()
		if _, err := run(t, ctx, Check{Transport: transport}, to); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: want context canceled, got %v", transport, err)
		}
		if _, err := run(t, ctx, Check{Transport: transport}, to); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: already canceled: got %v", transport, err)
		}
	}
}

// TestLeaksNothing makes a thousand checks that fail in each way and counts
// descriptors and goroutines.
func TestLeaksNothing(t *testing.T) {
	silentUDP, silentTCP, silent := both(t, "127.0.0.1")
	script(t, silentUDP, func([]byte) [][]byte { return nil })
	held := make(chan net.Conn, 2000)
	go func() {
		for {
			c, err := silentTCP.Accept()
			if err != nil {
				return
			}
			held <- c
		}
	}()
	wrongUDP, wrongTCP, wrong := both(t, "127.0.0.1")
	serve(t, wrongUDP, wrongTCP, serveZone)
	gone1, gone2, gone := both(t, "127.0.0.1")
	gone1.Close()
	gone2.Close()
	tests := []struct {
		name    string
		to      netip.AddrPort
		timeout time.Duration
	}{
		{"silent", silent, 50 * time.Millisecond},
		{"wrong answer", wrong, 30 * time.Second},
		{"refused", gone, 30 * time.Second},
	}
	for _, tt := range tests {
		for _, transport := range []string{UDP, TCP} {
			c := Check{Transport: transport, Name: "absent.example.org", Type: 1}
			if _, err := checktest.Run(t, c, healthcheck.Env{}, tt.to.String(), tt.timeout); err == nil { // warm up
				t.Fatal("want a failure")
			}
			settle(t, held)
			fds, routines := filetest.Descriptors(t), runtime.NumGoroutine()
			const n, parallel = 1000, 50
			failed := make(chan error, n)
			slots := make(chan struct{}, parallel)
			for range n {
				slots <- struct{}{}
				go func() {
					defer func() { <-slots }()
					_, err := checktest.Run(t, c, healthcheck.Env{}, tt.to.String(), tt.timeout)
					failed <- err
				}()
			}
			for range n {
				if err := <-failed; err == nil {
					t.Fatalf("%s over %s: want failures only", tt.name, transport)
				}
			}
			settle(t, held)
			deadline := time.Now().Add(10 * time.Second)
			for (runtime.NumGoroutine() > routines || filetest.Descriptors(t) > fds) && time.Now().Before(deadline) {
				settle(t, held)
				time.Sleep(time.Millisecond)
			}
			if got := runtime.NumGoroutine(); got > routines {
				t.Errorf("%s over %s: %d goroutines before, %d after", tt.name, transport, routines, got)
			}
			if got := filetest.Descriptors(t); got > fds {
				t.Errorf("%s over %s: %d descriptors before, %d after", tt.name, transport, fds, got)
			}
		}
	}
}

// settle closes the server's ends of connections.
func settle(t *testing.T, held chan net.Conn) {
	t.Helper()
	for {
		select {
		case c := <-held:
			c.Close()
		default:
			return
		}
	}
}
