package ipvs

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// benchOps are a service and n real servers.
func benchOps(n int) []Op { return addOps(n) }

func BenchmarkApplyEncode(b *testing.B) {
	ops := benchOps(999)
	c := newClient(nil, nil)
	c.link = &link{family: fakeFamily, maxOps: 1000, maxBytes: 1 << 20}
	b.ReportAllocs()
	for b.Loop() {
		for i := range ops {
			if err := ops[i].Validate(); err != nil {
				b.Fatal(err)
			}
		}
		if next, _ := c.encodeBatch(ops, 0, nil); next != len(ops) {
			b.Fatalf("%d operations in a batch", next)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(ops)), "ns/request")
}

func BenchmarkDecodeDestinations(b *testing.B) {
	const n = 80
	var datagram []byte
	for i := range n {
		d := DestinationStatus{Destination: testDest(i), Stats: fullStats(uint64(i))}
		datagram = append(datagram, bodyMessage(1, flagMulti, cmdNewDest, appendDestStatus(nil, d))...)
	}
	list := make([]DestinationStatus, 0, n)
	b.ReportAllocs()
	b.SetBytes(int64(len(datagram)))
	for b.Loop() {
		list = list[:0]
		var m message
		for rest := datagram; len(rest) > 0; {
			var err error
			if rest, err = m.parse(rest); err != nil {
				b.Fatal(err)
			}
			body, err := m.body(fakeFamily, cmdNewDest)
			if err != nil {
				b.Fatal(err)
			}
			list = append(list, DestinationStatus{})
			if err := decodeDest(body, IPv4, &list[len(list)-1]); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/server")
}

func BenchmarkCounts(b *testing.B) {
	var text strings.Builder
	text.WriteString(countsHeading)
	for s := range 1000 {
		fmt.Fprintf(&text, "TCP  C0%06X:0050 wlc  \n", s)
		for d := range 20 {
			fmt.Fprintf(&text, "  -> 0A%06X:0050      Masq    1      0          %-10d\n", s*20+d, d)
		}
	}
	b.Run("v4", func(b *testing.B) { benchmarkParse(b, []byte(text.String())) })

	text.Reset()
	text.WriteString(countsHeading)
	group := func(a netip.Addr) string { return a.StringExpanded() }
	for s := range 1000 {
		vip := netip.AddrFrom16([16]byte{0x20, 1, 14: byte(s >> 8), 15: byte(s)})
		fmt.Fprintf(&text, "TCP  [%s]:0050 wlc \n", group(vip))
		for d := range 20 {
			fmt.Fprintf(&text, "  -> [%s]:0050      Masq    1      0          %-10d\n", group(vip), d)
		}
	}
	b.Run("v6", func(b *testing.B) { benchmarkParse(b, []byte(text.String())) })
}

func benchmarkParse(b *testing.B, text []byte) {
	b.ReportAllocs()
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		t := countsTable{counts: make([]DestinationCounts, 0, 20000)}
		if err := t.parse(text); err != nil {
			b.Fatal(err)
		}
		if n := len(t.list()); n != 20000 {
			b.Fatalf("%d real servers", n)
		}
	}
}
