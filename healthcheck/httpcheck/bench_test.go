package httpcheck

import (
	"net/netip"
	"testing"

	"github.com/lbd-project/lbd/healthcheck/tlsopt"
)

// BenchmarkCheck makes checks of each kind. Server and client share the
// processors.
func BenchmarkCheck(b *testing.B) {
	options, cert := secure(b)
	answer := says(fine + "Connection: close\r\nContent-Length: 2\r\n\r\nok")
	for _, k := range kinds {
		b.Run(k.String(), func(b *testing.B) {
			c := Check{Version: k.version}
			var to string
			switch {
			case k.tls:
				c.TLS = &tlsopt.Options{CA: options.CA}
				to = serve(b, ok, cert)
			case k.version == Version2:
				to = serve(b, ok, nil)
			default:
				to = raw(b, answer)
			}
			checker, err := c.NewChecker(netip.MustParseAddrPort(to), testEnv)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := checker.Check(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
