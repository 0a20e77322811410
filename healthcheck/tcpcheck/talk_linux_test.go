package tcpcheck

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/healthcheck/expect"
	"github.com/lbd-project/lbd/internal/checktest"
)

// lines answers each line with what answers has for it, and hangs up after QUIT.
func lines(banner string, answers map[string]string) func(net.Conn) {
	return func(c net.Conn) {
		io.WriteString(c, banner)
		for s := bufio.NewScanner(c); s.Scan(); {
			io.WriteString(c, answers[s.Text()])
			if s.Text() == "QUIT" {
				return
			}
		}
	}
}

var ping = []Step{{Send: []byte("PING\n"), Expect: expect.Expect{Kind: expect.Text, Value: "+PONG\n", Start: true}}}

// TestTalk has whole conversations. A want that ends in "*" is the begin of the
// error.
func TestTalk(t *testing.T) {
	redis := lines("", map[string]string{"PING": "+PONG\n", "INFO": "role:master\nconnected_slaves:1\n"})
	mail := lines("220 hi\n", map[string]string{"QUIT": "221 bye\n"})
	const short, long = 300 * time.Millisecond, 20 * time.Second
	info := []byte("INFO\n")
	tests := []struct {
		name    string
		answer  func(net.Conn)
		steps   []Step
		timeout time.Duration
		want    string
	}{
		{"healthy", redis, ping, long, ""},
		{"banner", mail, []Step{{Expect: text("220")}, {Send: []byte("QUIT\n"), Expect: text("221")}}, long, ""},
		{"two in one answer", redis, []Step{{Send: info, Expect: text("slaves:1")}, {Expect: text("role:master")}}, long, ""},
		{"hex", redis, []Step{{Send: []byte("PING\n"), Expect: expect.Expect{Kind: expect.Hex, Value: "2b 50 4f XX 4X"}}}, long, ""},
		{"regex", redis, []Step{{Send: info, Expect: expect.Expect{Kind: expect.Regex, Value: `(?m)^connected_slaves:[1-9]`}}}, long, ""},
		// What came before the send is no answer to it.
		{"old answer", mail, []Step{{Expect: text("220")}, {Send: []byte("x\n"), Expect: text("220")}}, short,
			`step 2: expect text "220": got nothing: no answer in time: context deadline exceeded`},
		{"send alone", redis, []Step{{Send: []byte("PING\n")}}, long, ""},
		{"drip", checktest.Drip("+PONG\n", time.Millisecond), ping, long, ""},
		{"drip of regex", checktest.Drip(strings.Repeat("x", 1500)+"y", 0), []Step{{Expect: expect.Expect{Kind: expect.Regex, Value: "^x{700}x*y"}}}, long, ""},

		{"wrong answer", lines("", map[string]string{"PING": "-ERR\n"}), ping, long, `step 1: expect text at the start "+PONG\n": got "-ERR\n"`},
		{"wrong, keeps open", redis, []Step{{Send: info, Expect: text("role:slave")}}, short,
			`step 1: expect text "role:slave": got "role:master\nconnected_slaves:1\n": no answer in time: context deadline exceeded`},
		{"wrong, closes", checktest.SayAndClose("abc"), []Step{{Expect: text("d")}}, long, `step 1: expect text "d": got "abc": the target closed the connection: EOF`},
		{"closes early", checktest.Close, []Step{{Expect: text("d")}}, long, `step 1: expect text "d": got nothing: *`},
		{"resets", checktest.Reset, ping, long, `step 1: expect text at the start "+PONG\n": got nothing: read: connection reset by peer`},
		{"hangs", checktest.Hang, ping, short, `step 1: expect text at the start "+PONG\n": got nothing: no answer in time: context deadline exceeded`},
		{"drips for ever", checktest.Drip(strings.Repeat("x", 10000), 10*time.Millisecond), []Step{{Expect: text("y")}}, short, `step 1: expect text "y": got "xx*`},
		{"endless", checktest.Endless(strings.Repeat("x", 1000)), []Step{{Expect: text("y")}}, long, `step 1: expect text "y": got 32768 bytes "` + strings.Repeat("x", 64) + `"…: not in the first 32768 bytes`},
		{"endless single bytes", checktest.Endless("x"), []Step{{Expect: expect.Expect{Kind: expect.Regex, Value: "y$"}}}, long, `step 1: expect regex "y$": got 32768 bytes *`},
		{"garbage", checktest.Say("\x00\xff\x1b[31m\r\n"), ping, long, `step 1: expect text at the start "+PONG\n": got "\x00\xff\x1b[31m\r\n"`},

		// A target that keeps the connection open must not make a negated
		// expectation wait for the deadline.
		{"not, keeps open", redis, []Step{{Send: info, Expect: not(text("loading"))}}, long, ""},
		{"not, closes", checktest.SayAndClose("abc"), []Step{{Expect: not(text("d"))}}, long, ""},
		{"not, little time", redis, []Step{{Send: info, Expect: not(text("loading"))}}, short, ""},
		{"not, in a drip", checktest.Drip("abcd", 20*time.Millisecond), []Step{{Expect: not(text("cd"))}}, long, `step 1: expect no text "cd": got "abcd"`},
		{"not, then a send", redis, []Step{{Send: info, Expect: not(text("loading"))}, {Send: []byte("PING\n"), Expect: text("PONG")}}, long, ""},
		{"not, but it is", redis, []Step{{Send: info, Expect: not(text("role:master"))}}, long, `step 1: expect no text "role:master": got "role:master\n*`},
		{"not, endless", checktest.Endless("x"), []Step{{Expect: not(text("y"))}}, long, ""},
		{"not, hangs", checktest.Hang, []Step{{Expect: not(text("y"))}}, short, `step 1: expect no text "y": got nothing: no answer in time: context deadline exceeded`},
		{"not, closes without a word", checktest.SayAndClose(""), []Step{{Expect: not(text("y"))}}, long, `step 1: expect no text "y": got nothing: the target closed the connection: EOF`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			to := checktest.Serve(t, checktest.Listen(t), tt.answer)
			r, err := checktest.RunUntil(t, Check{Steps: tt.steps}, healthcheck.Env{}, to, tt.timeout, tt.want)
			if !checktest.Says(err, tt.want) {
				t.Errorf("want %q, got %q", tt.want, checktest.Text(err))
			}
			if (r.Detail == "") != (err != nil) {
				t.Errorf("got detail %q with error %v", r.Detail, err)
			}
			if timedOut := tt.timeout == short && tt.want != ""; errors.Is(err, context.DeadlineExceeded) != timedOut {
				t.Errorf("want deadline exceeded %v, got %v", timedOut, err)
			}
		})
	}
}

// TestPoliteClose looks at how the connection ends for a server that has sent
// more than the check wanted to know: with a FIN, not with a RST.
func TestPoliteClose(t *testing.T) {
	for name, steps := range map[string][]Step{
		"passes": {{Expect: text("220")}},
		"fails":  {{Expect: expect.Expect{Kind: expect.Text, Value: "554", Start: true}}},
	} {
		ends := make(chan error, 1)
		to := checktest.Serve(t, checktest.Listen(t), func(c net.Conn) {
			io.WriteString(c, "220 hello\r\n")
			// When the check has seen this, the rest is on its way.
			io.WriteString(c, strings.Repeat("and more\r\n", 100))
			_, err := c.Read(make([]byte, 1))
			ends <- err
		})
		_, err := checktest.Run(t, Check{Steps: steps}, healthcheck.Env{}, to, 20*time.Second)
		if (err == nil) != (name == "passes") {
			t.Errorf("%s: got %v", name, err)
		}
		if end := <-ends; !errors.Is(end, io.EOF) {
			t.Errorf("%s: want EOF at the server, got %v", name, end)
		}
	}
}

// TestCancel ends a check in the middle of an answer.
func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	to := checktest.Serve(t, checktest.Listen(t), func(c net.Conn) {
		cancel()
		checktest.Hang(c)
	})
	c, err := Check{Steps: ping}.NewChecker(netip.MustParseAddrPort(to), healthcheck.Env{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Check(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("want context canceled, got %v", err)
	}
}

// TestLeaks makes a thousand checks that fail in each way.
func TestLeaks(t *testing.T) {
	for name, to := range map[string]string{
		"refused": checktest.Refusing(t),
		"closes":  checktest.Serve(t, checktest.Listen(t), checktest.Close),
		"wrong":   checktest.Serve(t, checktest.Listen(t), checktest.Say("-ERR\n")),
		"endless": checktest.Serve(t, checktest.Listen(t), checktest.Endless(strings.Repeat("-", 4096))),
		"hangs":   checktest.Serve(t, checktest.Listen(t), checktest.Hang),
	} {
		timeout := 20 * time.Second
		if name == "hangs" {
			timeout = 20 * time.Millisecond
		}
		checktest.Leaks(t, 1000, func() {
			if _, err := checktest.Run(t, Check{Steps: ping}, healthcheck.Env{}, to, timeout); err == nil {
				t.Errorf("%s: want a failure", name)
			}
		})
	}
}
