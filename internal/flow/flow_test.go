package flow

import (
	"net/netip"
	"testing"
)

func TestTuple(t *testing.T) {
	for _, test := range []struct{ src, dst, want string }{
		{"198.51.100.7:4711", "192.0.2.10:80", "6 198.51.100.7:4711 > 192.0.2.10:80"},
		{"[2001:db8::7]:4711", "[2001:db8::10]:80", "6 [2001:db8::7]:4711 > [2001:db8::10]:80"},
		{"[::ffff:198.51.100.7]:1", "[::ffff:192.0.2.10]:2", "6 198.51.100.7:1 > 192.0.2.10:2"},
	} {
		src, dst := netip.MustParseAddrPort(test.src), netip.MustParseAddrPort(test.dst)
		a := New(6, src, dst)
		if got := a.String(); got != test.want {
			t.Errorf("want %s, got %s", test.want, got)
		}
		b := New(6, dst, src)
		if r := a.Reverse(); r != b || r.Reverse() != a {
			t.Errorf("reverse of %v: %v", a, r)
		}
		other := New6(6, src.Addr().As16(), dst.Addr().As16(), src.Port(), dst.Port())
		if src.Addr().Unmap().Is4() {
			s, d := src.Addr().Unmap().As4(), dst.Addr().Unmap().As4()
			other = New4(6, s, d, src.Port(), dst.Port())
		}
		if other != a {
			t.Errorf("want %v, got %v", a, other)
		}
	}
}

// TestTupleHash changes every part of a tuple by one bit: each must change the
// hash, and so must the seed.
func TestTupleHash(t *testing.T) {
	base := New(6, netip.MustParseAddrPort("[2001:db8::7]:4711"), netip.MustParseAddrPort("[2001:db8::10]:80"))
	seen := map[uint64]string{base.Hash(1): "base", base.Hash(2): "seed"}
	add := func(name string, tu Tuple) {
		h := tu.Hash(1)
		if other, ok := seen[h]; ok {
			t.Errorf("%s has the hash of %s", name, other)
		}
		seen[h] = name
	}
	for i := range 16 {
		s, d := base, base
		s.src[i] ^= 1
		d.dst[i] ^= 1
		add("source byte", s)
		add("destination byte", d)
	}
	p, q, r := base, base, base
	p.SrcPort ^= 1
	q.DstPort ^= 1
	r.Protocol ^= 1
	add("source port", p)
	add("destination port", q)
	add("protocol", r)
}

func TestTupleHashAllocates(t *testing.T) {
	tu := New(17, netip.MustParseAddrPort("198.51.100.7:1"), netip.MustParseAddrPort("192.0.2.10:53"))
	var sum uint64
	if n := testing.AllocsPerRun(100, func() { sum += tu.Hash(sum) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
