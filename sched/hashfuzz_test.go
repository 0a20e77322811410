package sched

import (
	"net/netip"
	"testing"
)

// FuzzHashPacket gives hash and cache schedulers packets that no parser would
// make: no panic, Peek and Pick agree, and a server comes out where all are
// available.
func FuzzHashPacket(f *testing.F) {
	f.Add([]byte{}, []byte{}, uint16(0), uint8(0))
	f.Add([]byte{10, 0, 0, 1}, []byte{192, 0, 2, 1}, uint16(80), uint8(6))
	f.Add(make([]byte, 16), []byte{1}, uint16(65535), uint8(132))
	f.Fuzz(func(t *testing.T, src, dst []byte, port uint16, proto uint8) {
		p := &Packet{SrcPort: port, Protocol: proto}
		p.Src, _ = netip.AddrFromSlice(src)
		p.Dst, _ = netip.AddrFromSlice(dst)
		for _, name := range []string{"sh", "dh", "mh", "ring", "lblc", "lblcr"} {
			fleet := newFleet(t, name, Options{Port: port&1 != 0, Fallback: proto&1 != 0}, weights(1, 7, 3)...)
			peek := fleet.Peek(p)
			pick := fleet.Pick(p, Active)
			if pick == nil || peek != pick {
				t.Errorf("%s: Peek %s, Pick %s", name, call(peek), call(pick))
			}
			if fleet.Update(pick, Config{}); fleet.Pick(p, Active) == pick {
				t.Errorf("%s: picked at weight 0", name)
			}
			if got := fleet.Pick(nil, Active); got == pick {
				t.Errorf("%s: picked at weight 0 without a packet", name)
			}
		}
	})
}
