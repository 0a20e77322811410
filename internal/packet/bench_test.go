package packet

import "testing"

func BenchmarkParse(b *testing.B) {
	for _, test := range []struct {
		name string
		b    []byte
	}{
		{"tcp4", ip4(6, 0x4000, nil, tcp(syn, synOptions...))},
		{"udp4", ip4(17, 0, nil, udp(8))},
		{"sctp4", ip4(132, 0, nil, sctp(initChunk...))},
		{"tcp6", ip6(6, tcp(syn, synOptions...)...)},
		{"udp6 hop-by-hop", ip6(0, join(extension(17, 3), udp(8))...)},
		{"tcp4 malformed options", ip4(6, 0, []byte{7, 0, 0, 0}, tcp(syn, 2, 0, 8, 255))},
		{"fragment headers for ever", badCases()[len(badCases())-3].b},
	} {
		b.Run(test.name, func(b *testing.B) {
			var p Parser
			var in Info
			b.ReportAllocs()
			for b.Loop() {
				p.Parse(test.b, &in)
			}
		})
	}
}
