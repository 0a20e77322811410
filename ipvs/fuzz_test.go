package ipvs

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// Every decoder is fed anything. It must not panic, must give zero values with
// an error, and what it accepts must survive being encoded and decoded again.

func FuzzDecodeService(f *testing.F) {
	f.Add(appendServiceStatus(nil, ServiceStatus{Service: testService(80), Stats: fullStats(1)}))
	f.Add(appendServiceStatus(nil, ServiceStatus{Service: Service{ServiceKey: MarkService(IPv6, 7), Scheduler: "mh"}}))
	f.Add([]byte{4, 0, attrService, 0x80})
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decodeService(b, make(names))
		if err != nil {
			if s != (ServiceStatus{}) {
				t.Fatalf("%+v with error %v", s, err)
			}
			return
		}
		if k, err := decodeServiceKey(b, make(names)); err != nil || k != s.ServiceKey {
			t.Fatalf("key %v, %v; want %v", k, err, s.ServiceKey)
		}
		again, err := decodeService(appendServiceStatus(nil, s), nil)
		if err != nil || again != s {
			t.Fatalf("decoded again\n%+v, %v; want\n%+v", again, err, s)
		}
	})
}

func FuzzDecodeDestination(f *testing.F) {
	f.Add(appendDestStatus(nil, DestinationStatus{Destination: testDest(2), Stats: fullStats(1)}), true)
	f.Add([]byte{8, 0, attrDest, 0, 3, 0, 1, 0}, false)
	f.Fuzz(func(t *testing.T, b []byte, v6 bool) {
		family := IPv4
		if v6 {
			family = IPv6
		}
		var d DestinationStatus
		if err := decodeDest(b, family, &d); err != nil {
			if d != (DestinationStatus{}) {
				t.Fatalf("%+v with error %v", d, err)
			}
			return
		}
		var again DestinationStatus
		if err := decodeDest(appendDestStatus(nil, d), family, &again); err != nil || again != d {
			t.Fatalf("decoded again\n%+v, %v; want\n%+v", again, err, d)
		}
	})
}

func FuzzDecodeSyncDaemon(f *testing.F) {
	f.Add(appendSyncDaemon(nil, SyncDaemon{State: SyncBackup, Interface: "eth0", SyncID: 1, MaxLen: 2, Port: 3, TTL: 4}))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := decodeSyncDaemon(b)
		if err != nil {
			if d != (SyncDaemon{}) {
				t.Fatalf("%+v with error %v", d, err)
			}
			return
		}
		again, err := decodeSyncDaemon(appendSyncDaemon(nil, d))
		if err != nil || again != d {
			t.Fatalf("decoded again\n%+v, %v; want\n%+v", again, err, d)
		}
	})
}

func FuzzDecodeConfig(f *testing.F) {
	f.Add(appendTimeouts(nil, Timeouts{TCP: 1, TCPFin: 2, UDP: 3}))
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := decodeTimeouts(b)
		if err != nil {
			if v != (Timeouts{}) {
				t.Fatalf("%+v with error %v", v, err)
			}
			return
		}
		if again, err := decodeTimeouts(appendTimeouts(nil, v)); err != nil || again != v {
			t.Fatalf("decoded again %+v, %v; want %+v", again, err, v)
		}
	})
}

func FuzzDecodeInfo(f *testing.F) {
	f.Add(concat(appendU32(nil, infoVersion, 0x010201), appendU32(nil, infoConnTabSize, 4096)))
	f.Fuzz(func(t *testing.T, b []byte) {
		if v, err := decodeInfo(b); err != nil && v != (Info{}) {
			t.Fatalf("%+v with error %v", v, err)
		}
	})
}

// FuzzDecodeMessages is what receive and its callers do with a datagram.
func FuzzDecodeMessages(f *testing.F) {
	f.Add(errorMessage(1, 2))
	f.Add(doneMessage(1, 2))
	f.Add(concat(bodyMessage(1, flagMulti, cmdNewDest, appendDestStatus(nil, DestinationStatus{Destination: testDest(1)})), doneMessage(1, 0)))
	f.Fuzz(func(t *testing.T, b []byte) {
		var m message
		for len(b) > 0 {
			rest, err := m.parse(b)
			if err != nil {
				return
			}
			if len(rest) >= len(b) {
				t.Fatalf("%d bytes left of %d", len(rest), len(b))
			}
			b = rest
			for _, decode := range []func() (answer, error){
				func() (answer, error) { return decodeAnswer(m.flags, m.payload) },
				func() (answer, error) { return decodeErrno(m.payload) },
			} {
				ans, err := decode()
				if err != nil && ans != (answer{}) {
					t.Fatalf("%+v with error %v", ans, err)
				}
				if err == nil && binary.NativeEndian.Uint32(m.payload) != uint32(-int32(ans.errno)) {
					t.Fatalf("errno %d of % x", ans.errno, m.payload)
				}
			}
			if body, err := m.body(fakeFamily, cmdNewDest); err == nil {
				_, _ = nested(body, attrDest)
			}
		}
	})
}

func FuzzParseCounts(f *testing.F) {
	f.Add([]byte(countsText))
	f.Add([]byte(countsHeading))
	f.Fuzz(func(t *testing.T, b []byte) {
		var table countsTable
		if err := table.parse(b); err != nil {
			return
		}
		lines := bytes.Count(b, []byte("\n"))
		if n := len(table.counts) + len(table.services); n > lines {
			t.Fatalf("%d objects in %d lines", n, lines)
		}
		at := 0
		for _, s := range table.services {
			if s.from != at || s.to < s.from {
				t.Fatalf("service %v has real servers %d to %d, want from %d", s.key, s.from, s.to, at)
			}
			at = s.to
			for _, d := range table.counts[s.from:s.to] {
				if d.Service != s.key {
					t.Fatalf("real server of %v in %v", d.Service, s.key)
				}
			}
		}
		keys := []ServiceKey{MarkService(IPv4, 7), MarkService(IPv6, 0x12345), testService(80).ServiceKey}
		for _, k := range table.missing(keys) {
			table.add(k, []DestinationStatus{{Destination: testDest(1)}})
		}
		for _, d := range table.list() {
			if d.Service.Family == 0 || !d.Address.IsValid() {
				t.Fatalf("listed %+v", d)
			}
		}
	})
}

func FuzzParseConnections(f *testing.F) {
	f.Add([]byte(headingConnections + "\nTCP C0000201 9C40 C000020A 0050 0A000002 1F90 ESTABLISHED     899\n"))
	f.Add([]byte(headingConnections + "\nUDP C0000201 0000 C000020A 13C4 0A000002 13C4 UDP             180 sip x\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		n := 0
		err := readConnections(t.Context(), bytes.NewReader(b), func(c Connection) bool {
			n++
			if !c.Client.IsValid() || !c.Virtual.IsValid() || !c.Server.IsValid() || c.State == "" || c.Expires < 0 {
				t.Fatalf("%+v", c)
			}
			return true
		})
		if lines := bytes.Count(b, []byte("\n")); err == nil && n != max(lines-1, 0) {
			t.Fatalf("%d connections in %d lines", n, lines)
		}
	})
}
