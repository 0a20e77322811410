package config

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/internal/checktest"
)

// failing are checks of every type, as short as can be, of a real server that is
// not there: nothing in them says what must go wrong. ICMP asks an address that no
// route of a loopback interface leads to.
var failing = map[string]string{
	checkTCP:   "{type: tcp}",
	checkTLS:   "{type: tls}",
	checkHTTP:  "{type: http}",
	checkHTTPS: "{type: https}",
	checkUDP:   "{type: udp}", // the kernel says that nobody listens
	checkICMP:  "{type: icmp, interface: nosuch0}",
	checkDNS:   "{type: dns}",
	checkSMTP:  "{type: smtp}",
	checkGRPC:  "{type: grpc}",
	checkExec:  "{type: exec, command: [/bin/false]}",
	checkFile:  "{type: file, file: /nonexistent/weight}",
}

// probesOf returns the probes of the one real server, at address, of a file with
// one check.
func probesOf(t *testing.T, check, address string) []healthcheck.Probe {
	t.Helper()
	c, err := Parse("lbd.yaml", fmt.Appendf(nil, `
virtual_services:
  - {address: "192.0.2.10:80", check: %s, real_servers: [{address: "%s"}]}
`, check, address))
	if err != nil {
		t.Fatal(err)
	}
	return c.VirtualServices[0].RealServers[0].Probes
}

func checkerOf(t *testing.T, p healthcheck.Probe) healthcheck.Checker {
	t.Helper()
	c, err := p.Method.NewChecker(p.Target, healthcheck.Env{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A check of any type can fail: one that says only where to look was a check that
// never did, elsewhere.
func TestEveryTypeFails(t *testing.T) {
	if diff := cmp.Diff(slices.Sorted(slices.Values(checkTypes)), slices.Sorted(maps.Keys(failing))); diff != "" {
		t.Fatalf("types (-want +got):\n%s", diff)
	}
	address := checktest.Refusing(t)
	for kind, text := range failing {
		t.Run(kind, func(t *testing.T) {
			p := probesOf(t, text, address)
			if len(p) != 1 {
				t.Fatalf("want one probe, got %d", len(p))
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if r, err := checkerOf(t, p[0]).Check(ctx); err == nil {
				t.Errorf("want a failure, got %+v", r)
			} else if ctx.Err() != nil {
				t.Errorf("want a failure before the deadline, got %v", err)
			}
		})
	}
}

// A deadline that is over already is no reason to wait for ever: the check ends at
// once, whatever its type, and only the answer to a SYN may be there already.
func TestEveryTypeKeepsOverDeadline(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0") // which answers nobody
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	for kind, text := range failing {
		t.Run(kind, func(t *testing.T) {
			c := checkerOf(t, probesOf(t, text, ln.Addr().String())[0])
			ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Hour))
			defer cancel()
			failed := make(chan error, 1)
			go func() {
				_, err := c.Check(ctx)
				failed <- err
			}()
			select {
			case err := <-failed:
				if err == nil && kind != checkTCP {
					t.Error("want a failure")
				}
			case <-time.After(20 * time.Second):
				t.Error("still waits")
			}
		})
	}
}

// A certificate that changed in its file makes another check of it at the next
// reload, not one that goes on with the old.
func TestCertificateIsOfTheCheck(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ca.pem")
	keyOf := func(serial int64) string {
		t.Helper()
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		ca := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
		der, err := x509.CreateCertificate(rand.Reader, ca, ca, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return probesOf(t, "{type: https, tls: {ca: "+path+"}}", "10.0.0.2:443")[0].Key()
	}
	first, second := keyOf(1), keyOf(2)
	if first == second {
		t.Errorf("want another key for another certificate, got %s twice", first)
	}
	again := probesOf(t, "{type: https, tls: {ca: "+path+"}}", "10.0.0.2:443")[0].Key()
	if again != second {
		t.Errorf("want the key of the same file to stay %s, got %s", second, again)
	}
}
