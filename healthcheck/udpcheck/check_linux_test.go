package udpcheck

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/internal/checktest"
)

// serve gives each datagram to answer until the test ends, and returns the
// address.
func serve(t *testing.T, conn net.PacketConn, answer func(data string, reply func(string))) string {
	t.Helper()
	t.Cleanup(func() { conn.Close() })
	go func() {
		b := make([]byte, maxReply)
		for {
			n, from, err := conn.ReadFrom(b)
			if err != nil {
				return
			}
			answer(string(b[:n]), func(s string) { conn.WriteTo([]byte(s), from) })
		}
	}()
	return conn.LocalAddr().String()
}

func listen(t *testing.T, host string) net.PacketConn {
	t.Helper()
	conn, err := net.ListenPacket("udp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// refusing returns an address for whose datagrams the kernel says that nobody listens:
// its socket takes those of another port alone, and no other can be there meanwhile.
func refusing(t *testing.T, host string) string {
	t.Helper()
	conn, err := net.Dial("udp", net.JoinHostPort(host, "9"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn.LocalAddr().String()
}

func echo(data string, reply func(string)) { reply(data) }

func silent(string, func(string)) {}

// TestAsk has every answer that a datagram can get. A want that ends in "*" is
// the begin of the error.
func TestAsk(t *testing.T) {
	// Silence ends 100 ms before a deadline of 2 s, and 10 before one of 200 ms,
	// which a machine with other work may miss.
	const short, silence, long = 200 * time.Millisecond, 2 * time.Second, 20 * time.Second
	says := func(s string) func(string, func(string)) { return func(_ string, reply func(string)) { reply(s) } }
	tests := []struct {
		name         string
		answer       func(string, func(string))
		check        Check
		timeout      time.Duration
		detail, want string
	}{
		{"healthy", echo, Check{Payload: []byte("pong"), Expect: pong, RequireReply: true}, long, "a reply of 4 bytes", ""},
		{"empty payload, empty reply", echo, Check{RequireReply: true}, long, "a reply of 0 bytes", ""},
		{"any reply", echo, Check{Payload: []byte("x")}, long, "a reply of 1 bytes", ""},
		{"long reply", says(strings.Repeat("x", 60000)), Check{MinReply: 60000}, long, "a reply of 60000 bytes", ""},
		{"slow", func(_ string, reply func(string)) { time.Sleep(50 * time.Millisecond); reply("pong") }, Check{Expect: pong, RequireReply: true}, long, "a reply of 4 bytes", ""},
		{"silent", silent, Check{Payload: []byte("x"), Expect: pong}, silence, "neither a reply nor an ICMP error", ""},

		{"silent, reply required", silent, Check{Payload: []byte("x"), RequireReply: true}, short, "", "no answer in time: context deadline exceeded"},
		// Silence would do, but a wrong answer does not.
		{"wrong answer", says("ping"), Check{Expect: pong}, long, "", `expect text at the start "pong": got "ping"`},
		{"wrong answer, required", says("ping"), Check{Expect: pong, RequireReply: true}, long, "", `expect text at the start "pong": got "ping"`},
		{"negated", says("a pong"), Check{Expect: notPong}, long, "", `expect no text "pong": got "a pong"`},
		{"too short", says("pong"), Check{MinReply: 5}, long, "", `a reply of 4 bytes, fewer than 5: "pong"`},
		{"too long", says(strings.Repeat("x", 60000)), Check{MaxReply: 59999}, long, "", "a reply of 60000 bytes, more than 59999: *"},
		{"in pieces", func(_ string, reply func(string)) { reply("po"); reply("ng") }, Check{Expect: pong}, long, "", `expect text at the start "pong": got "po"`},
		{"endless", func(_ string, reply func(string)) {
			for range 1000 {
				reply("x")
			}
		}, Check{Expect: pong}, long, "", `expect text at the start "pong": got "x"`},
	}
	for _, host := range []string{"127.0.0.1", "::1"} {
		for _, tt := range tests {
			t.Run(tt.name+" "+host, func(t *testing.T) {
				t.Parallel()
				to := serve(t, listen(t, host), tt.answer)
				r, err := checktest.RunUntil(t, tt.check, healthcheck.Env{}, to, tt.timeout, tt.want)
				if !checktest.Says(err, tt.want) {
					t.Errorf("want %q, got %q", tt.want, checktest.Text(err))
				}
				if r.Detail != tt.detail {
					t.Errorf("want detail %q, got %q", tt.detail, r.Detail)
				}
			})
		}
	}
}

// TestRefused has the target's kernel say that nobody listens.
func TestRefused(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "::1"} {
		to := refusing(t, host)
		for _, require := range []bool{false, true} {
			c := Check{Payload: []byte("x"), RequireReply: require}
			_, err := checktest.Run(t, c, healthcheck.Env{}, to, 20*time.Second)
			if !errors.Is(err, unix.ECONNREFUSED) || checktest.Text(err) != "ICMP from "+host+" says port unreachable: connection refused" || errors.Is(err, healthcheck.ErrLocal) {
				t.Errorf("%s, reply required %v: got %v", host, require, err)
			}
		}
	}
}

// TestStranger ignores whoever answers in the place of the target, from its
// address as well.
func TestStranger(t *testing.T) {
	stranger := listen(t, "127.0.0.1")
	defer stranger.Close()
	to := listen(t, "127.0.0.1")
	defer to.Close()
	go func() {
		b := make([]byte, 100)
		for {
			_, from, err := to.ReadFrom(b)
			if err != nil {
				return
			}
			stranger.WriteTo([]byte("pong"), from)
		}
	}()
	c := Check{Payload: []byte("x"), RequireReply: true, Expect: pong}
	if _, err := checktest.Run(t, c, healthcheck.Env{}, to.LocalAddr().String(), 200*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("want no answer in time, got %v", err)
	}
}

// inTime returns nil if one of five checks that wait for silence does: a busy machine
// may miss the last 100 ms, which they have to say so.
func inTime(check func() error) (err error) {
	for range 5 {
		if err = check(); err == nil {
			break
		}
	}
	return err
}

// TestSilenceInTime has silence end before the deadline: a Monitor takes a
// result that comes after it for a failure.
func TestSilenceInTime(t *testing.T) {
	to := netip.MustParseAddrPort(serve(t, listen(t, "127.0.0.1"), silent))
	c, err := Check{}.NewChecker(to, healthcheck.Env{})
	if err != nil {
		t.Fatal(err)
	}
	if err := inTime(func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := c.Check(ctx)
		return errors.Join(err, ctx.Err())
	}); err != nil {
		t.Errorf("want success in time, got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := c.Check(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("want context canceled, got %v", err)
	}
}

// TestLeaks makes a thousand checks that fail in each way: failed ones of peers
// have kept their sockets.
func TestLeaks(t *testing.T) {
	for name, to := range map[string]string{
		"refused": refusing(t, "127.0.0.1"),
		"wrong":   serve(t, listen(t, "127.0.0.1"), echo),
		"silent":  serve(t, listen(t, "127.0.0.1"), silent),
	} {
		timeout := 20 * time.Second
		if name == "silent" {
			timeout = 20 * time.Millisecond
		}
		checktest.Leaks(t, 1000, func() {
			c := Check{Payload: []byte("x"), Expect: pong, RequireReply: true}
			if _, err := checktest.Run(t, c, healthcheck.Env{}, to, timeout); err == nil {
				t.Errorf("%s: want a failure", name)
			}
		})
	}
}

// FuzzOffender reads control messages as the kernel never sends them.
func FuzzOffender(f *testing.F) {
	v4 := append([]byte{48, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 11, 0, 0, 0, 111, 0, 0, 0, 2, 3, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0}, 10, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0)
	if a, ok := offender(v4); !ok || a != netip.AddrFrom4([4]byte{10, 0, 0, 2}) {
		f.Fatalf("want 10.0.0.2, got %v", a)
	}
	f.Add(v4)
	f.Add(v4[:34])
	f.Fuzz(func(t *testing.T, b []byte) {
		if a, ok := offender(b); ok != a.IsValid() {
			t.Errorf("got %v, %v", a, ok)
		}
	})
}
