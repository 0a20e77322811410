package udpcheck

import (
	"bytes"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/healthcheck/expect"
	"github.com/lbd-project/lbd/internal/checktest"
)

var (
	pong    = expect.Expect{Kind: expect.Text, Value: "pong", Start: true}
	notPong = expect.Expect{Kind: expect.Text, Value: "pong", Negate: true}
)

func TestKey(t *testing.T) {
	c := Check{Via: healthcheck.Via{Mark: 1}, Payload: []byte("secret"), RequireReply: true, Expect: pong, MinReply: 1, MaxReply: 9}
	want := "udp mark=0x1 send=2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b" +
		` reply expect=text at the start "pong" min=1 max=9`
	if diff := cmp.Diff(want, c.Key()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	keys := map[string]int{}
	for i, c := range []Check{
		{}, {Via: healthcheck.Via{Interface: "eth0"}}, {Payload: []byte("a")}, {RequireReply: true},
		{Expect: pong}, {Expect: notPong}, {MinReply: 1}, {MaxReply: 1}, {MinReply: 1, MaxReply: 1},
	} {
		if j, ok := keys[c.Key()]; ok {
			t.Errorf("checks %d and %d have the key %q", j, i, c.Key())
		}
		keys[c.Key()] = i
	}
}

func TestNewChecker(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("no checks on " + runtime.GOOS)
	}
	tests := []struct {
		target string
		check  Check
		want   string
	}{
		{"10.0.0.2:53", Check{}, ""},
		{"[::ffff:10.0.0.2]:53", Check{Payload: []byte("x"), Expect: pong, MinReply: 4, MaxReply: 4}, ""},
		{"10.0.0.2:0", Check{}, "no port"},
		{"255.255.255.255:53", Check{}, "not the address of a host"},
		{"10.0.0.2:53", Check{Via: healthcheck.Via{Interface: "a/b"}}, `interface "a/b" is not the name of an interface`},
		{"10.0.0.2:53", Check{Payload: bytes.Repeat([]byte("a"), MaxPayload+1)}, "4097 bytes to send are more than 4096"},
		{"10.0.0.2:53", Check{MinReply: -1}, "least length of the reply -1 is not in 0 to 65535"},
		{"10.0.0.2:53", Check{MaxReply: 65536}, "greatest length of the reply 65536 is not in 0 to 65535"},
		{"10.0.0.2:53", Check{MinReply: 9, MaxReply: 8}, "greatest length of the reply 8 is less than the least, 9"},
		{"10.0.0.2:53", Check{Expect: expect.Expect{Kind: expect.Hex, Value: "0"}}, `expected hex: hex at character 1: "0" has one digit, want two for a byte`},
	}
	for _, tt := range tests {
		c, err := tt.check.NewChecker(netip.MustParseAddrPort(tt.target), healthcheck.Env{})
		_, got, _ := strings.Cut(checktest.Text(err), ": ")
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s %+v (-want +got):\n%s", tt.target, tt.check, diff)
		}
		if (c == nil) != (err != nil) {
			t.Errorf("%+v: got %v with error %v", tt.check, c, err)
		}
	}
}

func TestWarnings(t *testing.T) {
	tests := []struct {
		check   Check
		timeout time.Duration
		want    []string
	}{
		{Check{RequireReply: true}, time.Second, nil},
		{Check{}, 4 * time.Second, []string{SilenceWarning}},
		{Check{Expect: pong}, 4*time.Second - 1, []string{SilenceWarning, TimeoutWarning}},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, tt.check.Warnings(tt.timeout)); diff != "" {
			t.Errorf("%+v, %v (-want +got):\n%s", tt.check, tt.timeout, diff)
		}
	}
}

func TestJudge(t *testing.T) {
	tests := []struct {
		check      Check
		data, want string
	}{
		{Check{}, "", ""},
		{Check{Expect: pong}, "pong!", ""},
		{Check{Expect: pong}, "ping", `expect text at the start "pong": got "ping"`},
		{Check{Expect: pong}, "pon", `expect text at the start "pong": got "pon"`},
		{Check{Expect: pong}, "", `expect text at the start "pong": got no byte`},
		{Check{Expect: notPong}, "ping", ""},
		{Check{Expect: notPong}, "a pong", `expect no text "pong": got "a pong"`},
		{Check{Expect: notPong}, "", `expect no text "pong": got no byte`},
		{Check{Expect: expect.Expect{Kind: expect.Regex, Value: "^p.ng$"}}, "ping", ""},
		{Check{Expect: expect.Expect{Kind: expect.Regex, Value: "^p.ng$"}}, "pings", `expect regex "^p.ng$": got "pings"`},
		{Check{Expect: expect.Expect{Kind: expect.Hex, Value: "7X XX", Start: true}}, "pi", ""},
		{Check{Expect: expect.Expect{Kind: expect.Hex, Value: "7X XX", Start: true}}, "i", `expect hex at the start "7X XX": got "i"`},
		{Check{MinReply: 3}, "abc", ""},
		{Check{MinReply: 3}, "ab", `a reply of 2 bytes, fewer than 3: "ab"`},
		{Check{MaxReply: 3}, "abc", ""},
		{Check{MaxReply: 3}, strings.Repeat("a", 100), `a reply of 100 bytes, more than 3: "` + strings.Repeat("a", 64) + `"…`},
	}
	for _, tt := range tests {
		m, err := tt.check.Expect.Compile()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, checktest.Text(tt.check.judge(m, []byte(tt.data)))); diff != "" {
			t.Errorf("%+v of %q (-want +got):\n%s", tt.check, tt.data, diff)
		}
	}
}
