package config

import (
	"bytes"
	"fmt"
	"testing"
)

// large returns a file of services times servers real servers.
func large(services, servers int) []byte {
	var b bytes.Buffer
	b.WriteString("checks:\n  tcp-ok: {type: tcp, interval: 2s}\nvirtual_services:\n")
	for i := range services {
		fmt.Fprintf(&b, "  - name: service-%d\n    address: 10.%d.%d.1:80\n    scheduler: wlc\n    check: tcp-ok\n    real_servers:\n", i, 100+i/250, i%250)
		for j := range servers {
			fmt.Fprintf(&b, "      - address: 10.%d.%d.%d:80\n        weight: %d\n        forwarding: masq\n", i/250, i%250, j+2, j)
		}
	}
	return b.Bytes()
}

func BenchmarkParse20000(b *testing.B) {
	data := large(1000, 20)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		c, err := Parse("lbd.yaml", data)
		if err != nil {
			b.Fatal(err)
		}
		if len(c.VirtualServices) != 1000 {
			b.Fatalf("want 1000 services, got %d", len(c.VirtualServices))
		}
	}
}

func BenchmarkParse20000Library(b *testing.B) {
	data := large(1000, 20)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, errs := readYAML("lbd.yaml", data); errs != nil {
			b.Fatal(errs)
		}
	}
}
