package packet

import (
	"slices"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
)

// FuzzParse looks for packets that make Parse panic or not end, that are read
// differently after other packets or when cut, or differently from gopacket's
// own way through all layers.
func FuzzParse(f *testing.F) {
	for _, test := range append(goodCases(), badCases()...) {
		f.Add(test.b)
	}
	var used Parser
	f.Fuzz(func(t *testing.T, b []byte) {
		var fresh Parser
		var want, got Info
		werr, gerr := fresh.Parse(b, &want), used.Parse(slices.Clone(b), &got)
		if werr != gerr || want != got {
			t.Fatalf("fresh parser %+v, %v; used parser %+v, %v", want, werr, got, gerr)
		}
		if werr != nil {
			return
		}
		if n := min(len(b), 128); used.Parse(b[:n], &got) == nil && got != want {
			t.Fatalf("whole %+v; cut to %d %+v", want, n, got)
		}
		compare(t, b, &want)
	})
}

// compare looks at what gopacket reads of a packet that Parse took.
func compare(t *testing.T, b []byte, in *Info) {
	first := layers.LayerTypeIPv4
	if !in.Is4() {
		first = layers.LayerTypeIPv6
	}
	p := gopacket.NewPacket(b, first, gopacket.DecodeOptions{NoCopy: true})
	if n := p.NetworkLayer(); n != nil {
		src, dst := n.NetworkFlow().Endpoints()
		if string(src.Raw()) != string(in.Src().AsSlice()) || string(dst.Raw()) != string(in.Dst().AsSlice()) {
			t.Fatalf("addresses %v, %v; gopacket %v, %v", in.Src(), in.Dst(), src, dst)
		}
	}
	if p.Layer(gopacket.LayerTypeFragment) != nil || p.ErrorLayer() != nil {
		// It reads no fragments, and its options and chunks are stricter.
		return
	}
	switch l := transport(p).(type) {
	case *layers.TCP:
		want := Info{Tuple: in.Tuple, SYN: l.SYN, ACK: l.ACK, FIN: l.FIN, RST: l.RST, Seq: l.Seq}
		want.SrcPort, want.DstPort, want.Protocol = uint16(l.SrcPort), uint16(l.DstPort), protocolTCP
		if *in != want {
			t.Fatalf("got %+v, gopacket %+v", *in, want)
		}
	case *layers.UDP:
		if in.SrcPort != uint16(l.SrcPort) || in.DstPort != uint16(l.DstPort) || in.Protocol != protocolUDP {
			t.Fatalf("got %+v, gopacket %v to %v", *in, l.SrcPort, l.DstPort)
		}
	case *layers.SCTP:
		init, _ := p.Layer(layers.LayerTypeSCTPInit).(*layers.SCTPInit)
		if in.SrcPort != uint16(l.SrcPort) || in.DstPort != uint16(l.DstPort) || in.Protocol != protocolSCTP {
			t.Fatalf("got %+v, gopacket %v to %v", *in, l.SrcPort, l.DstPort)
		}
		if in.Init && (init == nil || init.InitiateTag != in.Seq) {
			t.Fatalf("got %+v, gopacket %+v", *in, init)
		}
	}
}

// transport returns the layer behind the network's: not one that is wrapped in
// another protocol, headers of IPv6 and AH over IPv4 included, which no balancer
// looks into.
func transport(p gopacket.Packet) gopacket.Layer {
	all := p.Layers()
	for i, l := range all {
		switch l.LayerType() {
		case layers.LayerTypeIPv6HopByHop, layers.LayerTypeIPv6Routing, layers.LayerTypeIPv6Destination:
			if all[0].LayerType() == layers.LayerTypeIPv6 {
				continue
			}
		case layers.LayerTypeIPv4, layers.LayerTypeIPv6:
			if i == 0 {
				continue
			}
		}
		return l
	}
	return nil
}
