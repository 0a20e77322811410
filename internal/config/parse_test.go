package config

import (
	"bytes"
	"fmt"
	"strings"
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

// Repeats are found in short and in long lists, and only within a service.
func TestDuplicateServers(t *testing.T) {
	for _, n := range []int{2, 300} {
		var b strings.Builder
		b.WriteString("virtual_services:\n  - address: 192.0.2.10:80\n    real_servers:\n")
		for i := range n {
			fmt.Fprintf(&b, "      - address: 10.0.%d.%d\n", i/250, i%250+1)
		}
		if _, err := Parse("x", []byte(b.String())); err != nil {
			t.Errorf("%d real servers: %v", n, err)
		}
		b.WriteString("      - address: 10.0.0.2:80\n")
		_, err := Parse("x", []byte(b.String()))
		want := fmt.Sprintf("x:%d:18: duplicate real server 10.0.0.2:80, first at line 5", n+4)
		if err == nil || err.Error() != want {
			t.Errorf("%d real servers and a repeat: want %s, got %v", n, want, err)
		}
	}
}
