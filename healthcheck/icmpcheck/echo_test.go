package icmpcheck

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// ping is the request of the tests.
func ping(f family) echo {
	return echo{family: f, Echo: icmp.Echo{ID: 0x1234, Seq: 0x5678, Data: []byte("0123456789abcdef")}}
}

// TestMarshal has the request's bytes, as RFC 792 and RFC 4443 put them.
func TestMarshal(t *testing.T) {
	tests := []struct {
		name   string
		family family
		header []byte
	}{
		// The checksum of IPv4 is worked out below, by hand.
		{"v4", family4, []byte{8, 0, 0, 0, 0x12, 0x34, 0x56, 0x78}},
		{"v6", family6, []byte{128, 0, 0, 0, 0x12, 0x34, 0x56, 0x78}},
	}
	for _, tt := range tests {
		got, err := ping(tt.family).marshal()
		if err != nil {
			t.Fatal(err)
		}
		want := append(tt.header, "0123456789abcdef"...)
		if tt.family == family4 {
			sum := uint32(0)
			for i := 0; i < len(want); i += 2 {
				sum += uint32(binary.BigEndian.Uint16(want[i:]))
			}
			sum = sum&0xffff + sum>>16
			binary.BigEndian.PutUint16(want[2:], ^uint16(sum))
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: want % x, got % x", tt.name, want, got)
		}
	}
}

// TestNewEcho makes 64 requests that differ.
func TestNewEcho(t *testing.T) {
	type ids struct{ id, seq int }
	seen, payloads := map[ids]bool{}, map[string]bool{}
	for range 64 {
		e := newEcho(family4, 20)
		if len(e.Data) != 20 || !bytes.Equal(e.Data[8:], []byte{8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19}) {
			t.Fatalf("got payload % x", e.Data)
		}
		seen[ids{e.ID, e.Seq}], payloads[string(e.Data)] = true, true
	}
	if len(seen) < 64 || len(payloads) < 64 {
		t.Errorf("64 requests had %d ids and %d payloads", len(seen), len(payloads))
	}
}

// message returns a message with a change.
func message(f family, kind icmp.Type, change func(m *icmp.Message, e *icmp.Echo)) []byte {
	e := ping(f).Echo
	m := icmp.Message{Type: kind, Body: &e}
	if change != nil {
		change(&m, &e)
	}
	b, err := m.Marshal(nil)
	if err != nil {
		panic(err)
	}
	return b
}

func TestAnsweredBy(t *testing.T) {
	tests := []struct {
		name   string
		change func(m *icmp.Message, e *icmp.Echo)
		want   bool
	}{
		{"reply", nil, true},
		{"code", func(m *icmp.Message, e *icmp.Echo) { m.Code = 1 }, false},
		{"id", func(m *icmp.Message, e *icmp.Echo) { e.ID++ }, false},
		{"id in the other byte order", func(m *icmp.Message, e *icmp.Echo) { e.ID = 0x3412 }, false},
		{"sequence", func(m *icmp.Message, e *icmp.Echo) { e.Seq-- }, false},
		{"sequence in the other byte order", func(m *icmp.Message, e *icmp.Echo) { e.Seq = 0x7856 }, false},
		{"payload", func(m *icmp.Message, e *icmp.Echo) { e.Data[15]++ }, false},
		{"shorter", func(m *icmp.Message, e *icmp.Echo) { e.Data = e.Data[:15] }, false},
		{"longer", func(m *icmp.Message, e *icmp.Echo) { e.Data = append(e.Data, 0) }, false},
		{"no payload", func(m *icmp.Message, e *icmp.Echo) { e.Data = nil }, false},
	}
	for _, f := range []family{family4, family6} {
		for _, tt := range tests {
			if got := ping(f).answeredBy(message(f, f.reply, tt.change)); got != tt.want {
				t.Errorf("%v, %s: want %t, got %t", f.reply, tt.name, tt.want, got)
			}
		}
		if ping(f).answeredBy(message(f, f.request, nil)) {
			t.Errorf("%v answers itself", f.request)
		}
		for n := range headerLen + 16 {
			if ping(f).answeredBy(message(f, f.reply, nil)[:n]) {
				t.Errorf("%v: %d bytes are enough", f.reply, n)
			}
		}
	}
	if ping(family4).answeredBy(message(family6, ipv6.ICMPTypeEchoReply, nil)) || ping(family6).answeredBy(message(family4, ipv4.ICMPTypeEchoReply, nil)) {
		t.Error("one family answers the other")
	}
}

func TestQuotedBy(t *testing.T) {
	for _, f := range []family{family4, family6} {
		whole := message(f, f.request, nil)
		// Behind what a router quotes may be padding and extensions.
		for n := range len(whole) {
			if got, want := ping(f).quotedBy(whole[:n]), n >= headerLen; got != want {
				t.Errorf("%v, %d bytes: want %t, got %t", f.request, n, want, got)
			}
		}
		if !ping(f).quotedBy(append(slices.Clone(whole), 0, 0, 0, 0x20, 0)) {
			t.Errorf("%v: want it quoted before an extension", f.request)
		}
		for name, change := range map[string]func(m *icmp.Message, e *icmp.Echo){
			"id":       func(m *icmp.Message, e *icmp.Echo) { e.ID++ },
			"sequence": func(m *icmp.Message, e *icmp.Echo) { e.Seq++ },
			"nonce":    func(m *icmp.Message, e *icmp.Echo) { e.Data[7]++ },
			"code":     func(m *icmp.Message, e *icmp.Echo) { m.Code = 1 },
			"reply":    func(m *icmp.Message, e *icmp.Echo) { m.Type = f.reply },
		} {
			if ping(f).quotedBy(message(f, f.request, change)) {
				t.Errorf("%v: quoted by another %s", f.request, name)
			}
		}
	}
}

func TestPayload4(t *testing.T) {
	header := func(first byte, n int) []byte { return append([]byte{first}, make([]byte, n-1)...) }
	tests := []struct {
		packet []byte
		want   string
	}{
		{append(header(0x45, 20), "abc"...), "abc"},
		{append(header(0x46, 24), "abc"...), "abc"},
		{append(header(0x4f, 60), "abc"...), "abc"},
		{header(0x45, 20), ""},
		{nil, "no IPv4 packet"},
		{header(0x45, 19), "no IPv4 packet"},
		{header(0x65, 40), "no IPv4 packet"},
		{header(0x44, 20), "bad length of the IPv4 header"},
		{header(0x46, 23), "bad length of the IPv4 header"},
	}
	for _, tt := range tests {
		b, err := payload4(tt.packet)
		got := string(b)
		if err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("% x: want %q, got %q", tt.packet, tt.want, got)
		}
	}
}

// FuzzReceived takes any bytes for a packet, a message and a quotation.
func FuzzReceived(f *testing.F) {
	for _, fam := range []family{family4, family6} {
		f.Add(message(fam, fam.reply, nil))
		f.Add(message(fam, fam.request, nil))
		f.Add(append([]byte{0x46, 23: 0}, message(fam, fam.reply, nil)...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		before := slices.Clone(b)
		for _, fam := range []family{family4, family6} {
			e := ping(fam)
			request, err := e.marshal()
			if err != nil {
				t.Fatal(err)
			}
			// The same once more, byte by byte.
			same := func(kind icmp.Type, n int) bool {
				number := byte(8)
				switch kind {
				case ipv4.ICMPTypeEchoReply:
					number = 0
				case ipv6.ICMPTypeEchoRequest:
					number = 128
				case ipv6.ICMPTypeEchoReply:
					number = 129
				}
				return len(b) >= n && b[0] == number && b[1] == 0 && bytes.Equal(b[4:n], request[4:n])
			}
			if got, want := e.answeredBy(b), len(b) == len(request) && same(fam.reply, len(request)); got != want {
				t.Errorf("answered by % x: want %t, got %t", b, want, got)
			}
			n := min(len(b), headerLen+nonceLen)
			if got, want := e.quotedBy(b), n >= headerLen && same(fam.request, n); got != want {
				t.Errorf("quoted by % x: want %t, got %t", b, want, got)
			}
		}
		if p, err := payload4(b); err == nil && !bytes.HasSuffix(b, p) || err != nil && p != nil {
			t.Errorf("payload % x, %v of % x", p, err, b)
		}
		if _, err := parseExtended(b, 2, 10); (err == nil) != (len(b) >= extendedLen) {
			t.Errorf("extended error of %d bytes: %v", len(b), err)
		}
		if !bytes.Equal(b, before) {
			t.Error("the packet was changed")
		}
	})
}
