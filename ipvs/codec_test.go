package ipvs

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// unhex makes bytes of text in which white space and all after // are ignored.
func unhex(t *testing.T, text string) []byte {
	t.Helper()
	var digits strings.Builder
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "//")
		digits.WriteString(strings.Join(strings.Fields(line), ""))
	}
	b, err := hex.DecodeString(digits.String())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestRequestBytes pins requests byte by byte, above all the byte order of each
// field: ports, tunnel ports and IPv4 netmasks are in network order, all other
// numbers are the machine's own.
func TestRequestBytes(t *testing.T) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("the bytes are those of a little-endian machine")
	}
	v4 := AddrService(TCP, netip.MustParseAddrPort("192.0.2.10:80"))
	v6 := AddrService(UDP, netip.MustParseAddrPort("[2001:db8::a]:53"))
	mark := MarkService(IPv6, 0x12345)
	for _, tt := range []struct {
		name string
		op   Op
		want string
	}{
		{"add v4 service", Op{Kind: OpAddService, Service: Service{ServiceKey: v4, Scheduler: "wlc"}}, `
			68000000 2100 0100 44332211 00000000  // length, type, flags, number, port id
			01 01 0000                            // command, version
			5400 0100                             // IPVS_CMD_ATTR_SERVICE
			  0600 0100 0200 0000                 // AF
			  0600 0200 0600 0000                 // PROTOCOL
			  1400 0300 c000020a 000000000000000000000000 // ADDR
			  0600 0400 0050 0000                 // PORT
			  0800 0600 776c6300                  // SCHED_NAME
			  0c00 0700 00000000 ffffffff         // FLAGS: value, mask
			  0800 0800 00000000                  // TIMEOUT
			  0800 0900 ffffffff                  // NETMASK`},
		{"update v6 service", Op{Kind: OpUpdateService, Service: Service{ServiceKey: v6, Scheduler: "sh",
			Flags:       FlagPersistent | FlagOnePacket | FlagSHFallback | FlagSHPort,
			Persistence: Persistence{Timeout: 300 * time.Second, Netmask: NetmaskV6(64), Engine: "sip"}}}, `
			70000000 2100 0100 44332211 00000000
			02 01 0000
			5c00 0100
			  0600 0100 0a00 0000
			  0600 0200 1100 0000
			  1400 0300 20010db800000000000000000000000a
			  0600 0400 0035 0000
			  0700 0600 736800 00
			  0800 0b00 73697000                  // PE_NAME
			  0c00 0700 1d000000 ffffffff
			  0800 0800 2c010000                  // 300 s
			  0800 0900 40000000                  // prefix length, native`},
		{"add v6 service without netmask", Op{Kind: OpAddService, Service: Service{ServiceKey: mark, Scheduler: "rr"}}, `
			4c000000 2100 0100 44332211 00000000
			01 01 0000
			3800 0100
			  0600 0100 0a00 0000
			  0800 0500 45230100                  // FWMARK: 32 bits
			  0700 0600 727200 00
			  0c00 0700 00000000 ffffffff
			  0800 0800 00000000
			  0800 0900 80000000                  // 128`},
		{"v4 netmask", Op{Kind: OpAddService, Service: Service{ServiceKey: MarkService(IPv4, 1), Scheduler: "rr",
			Flags:       FlagPersistent,
			Persistence: Persistence{Timeout: time.Second, Netmask: NetmaskV4(netip.MustParseAddr("255.255.254.0"))}}}, `
			4c000000 2100 0100 44332211 00000000
			01 01 0000
			3800 0100
			  0600 0100 0200 0000
			  0800 0500 01000000
			  0700 0600 727200 00
			  0c00 0700 01000000 ffffffff
			  0800 0800 01000000
			  0800 0900 fffffe00                  // network order`},
		{"delete mark service", Op{Kind: OpDeleteService, Service: Service{ServiceKey: mark}}, `
			28000000 2100 0100 44332211 00000000
			03 01 0000
			1400 0100
			  0600 0100 0a00 0000
			  0800 0500 45230100`},
		{"add mixed-family destination", Op{Kind: OpAddDestination, Service: Service{ServiceKey: mark},
			Destination: Destination{Address: netip.MustParseAddrPort("10.0.0.2:8080"), Weight: 3, Forward: Tunnel,
				Tunnel:         TunnelOptions{Type: TunnelGUE, Port: 6080, Checksum: ChecksumRemote},
				UpperThreshold: 1000, LowerThreshold: 750}}, `
			88000000 2100 0100 44332211 00000000
			05 01 0000
			1400 0100
			  0600 0100 0a00 0000
			  0800 0500 45230100
			6000 0200                             // IPVS_CMD_ATTR_DEST
			  1400 0100 0a000002 000000000000000000000000
			  0600 0200 1f90 0000
			  0600 0b00 0200 0000                 // ADDR_FAMILY: its own
			  0800 0300 02000000                  // FWD_METHOD
			  0800 0400 03000000                  // WEIGHT
			  0500 0d00 01 000000                 // TUN_TYPE
			  0600 0e00 17c0 0000                 // TUN_PORT: network order
			  0600 0f00 0200 0000                 // TUN_FLAGS: native
			  0800 0500 e8030000                  // U_THRESH
			  0800 0600 ee020000                  // L_THRESH`},
		{"delete v6 destination", Op{Kind: OpDeleteDestination, Service: Service{ServiceKey: v6},
			Destination: Destination{Address: netip.MustParseAddrPort("[2001:db8::2]:53")}}, `
			6c000000 2100 0100 44332211 00000000
			07 01 0000
			3000 0100
			  0600 0100 0a00 0000
			  0600 0200 1100 0000
			  1400 0300 20010db800000000000000000000000a
			  0600 0400 0035 0000
			2800 0200
			  1400 0100 20010db8000000000000000000000002
			  0600 0200 0035 0000
			  0600 0b00 0a00 0000`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want := hex.Dump(unhex(t, tt.want))
			got := hex.Dump(appendOp(nil, fakeFamily, 0, 0x11223344, &tt.op))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDaemonBytes(t *testing.T) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("the bytes are those of a little-endian machine")
	}
	for _, tt := range []struct {
		name string
		d    SyncDaemon
		want string
	}{
		{"defaults", SyncDaemon{State: SyncMaster, Interface: "lo"}, `
			1c00 0300
			  0800 0100 01000000
			  0700 0200 6c6f00 00
			  0800 0300 00000000`},
		{"v4", SyncDaemon{State: SyncBackup, Interface: "eth0", SyncID: 200, MaxLen: 1400,
			Group: netip.MustParseAddr("239.1.2.3"), Port: 8849, TTL: 2}, `
			4000 0300
			  0800 0100 02000000
			  0900 0200 6574683000 000000
			  0800 0300 c8000000
			  0600 0400 7805 0000
			  0800 0500 ef010203
			  0600 0700 9122 0000                 // native order
			  0500 0800 02 000000`},
		{"v6", SyncDaemon{State: SyncMaster, Interface: "lo", Group: netip.MustParseAddr("ff02::81")}, `
			3000 0300
			  0800 0100 01000000
			  0700 0200 6c6f00 00
			  0800 0300 00000000
			  1400 0600 ff020000000000000000000000000081`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := appendSyncDaemon(nil, tt.d)
			if diff := cmp.Diff(hex.Dump(unhex(t, tt.want)), hex.Dump(got)); diff != "" {
				t.Errorf("attributes (-want +got):\n%s", diff)
			}
			back, err := decodeSyncDaemon(got)
			if err != nil || back != tt.d {
				t.Errorf("read back %+v, %v; want %+v", back, err, tt.d)
			}
		})
	}
}

func TestTimeoutBytes(t *testing.T) {
	want := Timeouts{TCP: 900 * time.Second, TCPFin: 120 * time.Second, UDP: math.MaxInt32 * time.Second}
	got, err := decodeTimeouts(appendTimeouts(nil, want))
	if err != nil || got != want {
		t.Errorf("read back %v, %v; want %v", got, err, want)
	}
	b := appendTimeouts(nil, Timeouts{TCP: 5 * time.Second})
	if len(b) != 24 || binary.NativeEndian.Uint16(b[2:]) != attrTimeoutTCP || binary.NativeEndian.Uint32(b[4:]) != 5 {
		t.Errorf("attributes % x", b)
	}
}

// attr makes one attribute.
func attr(typ uint16, val ...byte) []byte {
	b := append(appendHeader(nil, typ, len(val)), val...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

func nest(typ uint16, attrs ...[]byte) []byte {
	b := beginNested(nil, typ)
	for _, a := range attrs {
		b = append(b, a...)
	}
	endNested(b, 0)
	return b
}

func concat(list ...[]byte) (b []byte) {
	for _, l := range list {
		b = append(b, l...)
	}
	return b
}

// destAttrs are the attributes of a real server as an old kernel sends them, by
// type: no family, no 64-bit statistics, no tunnel.
func destAttrs(addr ...byte) map[uint16][]byte {
	return map[uint16][]byte{
		destAddr:        attr(destAddr, addr...),
		destPort:        appendPort(nil, destPort, 80),
		destFwdMethod:   appendU32(nil, destFwdMethod, uint32(Route)|0x100), // INACTIVE is the kernel's own
		destWeight:      appendU32(nil, destWeight, 7),
		destUThresh:     appendU32(nil, destUThresh, 0),
		destLThresh:     appendU32(nil, destLThresh, 0),
		destActiveConns: appendU32(nil, destActiveConns, math.MaxUint32),
	}
}

func TestDecodeDestination(t *testing.T) {
	v4 := []byte{10, 1, 1, 21, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	v6 := netip.MustParseAddr("fd00::1").As16()
	all := func(addr []byte, more ...[]byte) []byte {
		m := destAttrs(addr...)
		var list [][]byte
		for typ := uint16(1); typ < 16; typ++ { // in order, the family may be in more
			list = append(list, m[typ])
		}
		return nest(attrDest, append(list, more...)...)
	}
	family := func(f Family) []byte { return appendU16(nil, destAddrFamily, uint16(f)) }
	for _, tt := range []struct {
		name    string
		payload []byte
		service Family
		want    string // address
		err     string
	}{
		{name: "old kernel v4", payload: all(v4), service: IPv4, want: "10.1.1.21:80"},
		{name: "old kernel v6", payload: all(v6[:]), service: IPv6, want: "[fd00::1]:80"},
		{name: "four bytes", payload: all(v4[:4]), service: IPv4, want: "10.1.1.21:80"},
		{name: "family after the address", payload: all(v4, family(IPv4)), service: IPv6, want: "10.1.1.21:80"},
		{name: "v6 in a v4 service", payload: all(v6[:], family(IPv6)), service: IPv4, want: "[fd00::1]:80"},
		{name: "unknown attribute", payload: all(v4, attr(77, 1, 2, 3)), service: IPv4, want: "10.1.1.21:80"},
		{name: "duplicate", payload: all(v4, appendPort(nil, destPort, 80), family(IPv6), family(IPv4)), service: IPv4, want: "10.1.1.21:80"},
		{name: "nested flag", payload: concat(attr(0x8000|attrDest, all(v4)[attrHeaderLen:]...)), service: IPv4, want: "10.1.1.21:80"},
		{name: "short address", payload: all(v4[:3]), service: IPv4, err: "real server address has 3 bytes"},
		{name: "four bytes of v6", payload: all(v4[:4]), service: IPv6, err: "real server address has 4 bytes"},
		{name: "unknown family", payload: all(v4, family(7)), service: IPv4, err: "real server family 7 is unknown"},
		{name: "short port", payload: all(v4, attr(destPort, 1)), service: IPv4, err: "real server port has 1 bytes, want 2"},
		{name: "long weight", payload: all(v4, attr(destWeight, 1, 2, 3, 4, 5, 6, 7, 8)), service: IPv4, err: "weight has 8 bytes, want 4"},
		{name: "short tunnel type", payload: all(v4, attr(destTunType)), service: IPv4, err: "tunnel type has 0 bytes, want 1"},
		{name: "short statistic", payload: all(v4, nest(destStats64, attr(statsConns, 1, 2))), service: IPv4, err: "statistic 1 has 2 bytes"},
		{name: "no real server", payload: attr(attrService), service: IPv4, err: "attribute 2 is missing"},
		{name: "empty", payload: nest(attrDest), service: IPv4, err: "attribute 1 is missing"},
		{name: "length too long", payload: []byte{200, 0, attrDest, 0}, service: IPv4, err: "attribute longer than its message"},
		{name: "length too short", payload: []byte{3, 0, attrDest, 0}, service: IPv4, err: "attribute longer than its message"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := DestinationStatus{Destination: Destination{Weight: 99}} // must be overwritten
			err := decodeDest(tt.payload, tt.service, &d)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) || d != (DestinationStatus{}) {
					t.Fatalf("%+v, %v; want zero and %q", d, err, tt.err)
				}
				return
			}
			want := DestinationStatus{Destination: Destination{Address: netip.MustParseAddrPort(tt.want), Weight: 7,
				Forward: Route}, Conns: Conns{Active: math.MaxUint32}}
			if err != nil || d != want {
				t.Errorf("%+v, %v; want %+v", d, err, want)
			}
		})
	}
	// Every attribute that a real server cannot do without.
	for _, typ := range []uint16{destAddr, destPort, destFwdMethod, destWeight, destUThresh, destLThresh} {
		m := destAttrs(v4...)
		delete(m, typ)
		var list [][]byte
		for _, a := range m {
			list = append(list, a)
		}
		var d DestinationStatus
		if err := decodeDest(nest(attrDest, list...), IPv4, &d); err == nil || !strings.Contains(err.Error(), "is missing") {
			t.Errorf("without attribute %d: %v", typ, err)
		}
	}
}

func TestDecodeService(t *testing.T) {
	addr := []byte{192, 0, 2, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	base := func() map[uint16][]byte {
		flags := binary.NativeEndian.AppendUint32(nil, uint32(FlagOnePacket|serviceHashed))
		return map[uint16][]byte{
			svcAF:        appendU16(nil, svcAF, uint16(IPv4)),
			svcProtocol:  appendU16(nil, svcProtocol, uint16(TCP)),
			svcAddr:      attr(svcAddr, addr...),
			svcPort:      appendPort(nil, svcPort, 80),
			svcSchedName: appendString(nil, svcSchedName, "wlc"),
			svcFlags:     attr(svcFlags, binary.NativeEndian.AppendUint32(flags, math.MaxUint32)...),
			svcTimeout:   appendU32(nil, svcTimeout, 300),
			svcNetmask:   attr(svcNetmask, 255, 255, 255, 255),
		}
	}
	build := func(m map[uint16][]byte) []byte {
		var list [][]byte
		for typ := uint16(20); typ > 0; typ-- { // the family last
			list = append(list, m[typ])
		}
		return nest(attrService, list...)
	}
	want := ServiceStatus{Service: Service{ServiceKey: AddrService(TCP, netip.MustParseAddrPort("192.0.2.10:80")),
		Scheduler: "wlc", Flags: FlagOnePacket, Persistence: Persistence{Timeout: 300 * time.Second}}}
	got, err := decodeService(build(base()), nil)
	if err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}

	wide, narrow := fullStats(math.MaxUint32+1), fullStats(5)
	for name, tt := range map[string]struct {
		stats []byte
		want  Stats
	}{
		"both":      {concat(appendStats(nil, svcStats64, wide, true), appendStats(nil, svcStats, narrow, false)), wide},
		"32 bit":    {appendStats(nil, svcStats, narrow, false), narrow},
		"64 bit":    {appendStats(nil, svcStats64, wide, true), wide},
		"none":      {nil, Stats{}},
		"unknown":   {nest(svcStats64, appendU32(nil, 40, 1), appendU32(nil, statsConns, 3)), Stats{Connections: 3}},
		"in 64 min": {nest(svcStats64), Stats{}},
	} {
		m := base()
		m[svcStats] = tt.stats
		got, err := decodeService(build(m), nil)
		if err != nil || got.Stats != tt.want {
			t.Errorf("statistics, %s: %+v, %v; want %+v", name, got.Stats, err, tt.want)
		}
	}

	for typ := range base() {
		m := base()
		delete(m, typ)
		if got, err := decodeService(build(m), nil); err == nil || got != (ServiceStatus{}) {
			t.Errorf("without attribute %d: %+v, %v", typ, got, err)
		}
	}
	for name, tt := range map[string]struct {
		attr []byte
		err  string
	}{
		"family":    {appendU16(nil, svcAF, 1), "service family 1 is unknown"},
		"protocol":  {appendU16(nil, svcProtocol, 256), "service protocol 256"},
		"address":   {attr(svcAddr, 1), "service address has 1 bytes"},
		"port":      {attr(svcPort, 1, 2, 3, 4), "service port has 4 bytes"},
		"fwmark":    {attr(svcFWMark, 1, 2), "fwmark has 2 bytes"},
		"scheduler": {attr(svcSchedName, 'r', 'r'), "scheduler is no text"},
		"long name": {appendString(nil, svcSchedName, "0123456789abcdef"), "scheduler is no text of at most 15 bytes"},
		"engine":    {attr(svcPEName), "persistence engine is no text"},
		"flags":     {attr(svcFlags, 1, 2, 3, 4), "service flags has 4 bytes, want 8"},
		"timeout":   {attr(svcTimeout), "persistence timeout has 0 bytes"},
		"netmask":   {attr(svcNetmask, 255, 255), "netmask has 2 bytes"},
	} {
		payload := nest(attrService, build(base())[attrHeaderLen:], tt.attr)
		if got, err := decodeService(payload, nil); err == nil || !strings.Contains(err.Error(), tt.err) || got != (ServiceStatus{}) {
			t.Errorf("bad %s: %+v, %v; want %q", name, got, err, tt.err)
		}
	}
}

func TestDecodeInfo(t *testing.T) {
	good := concat(appendU32(nil, infoVersion, 0x010201), appendU32(nil, infoConnTabSize, 4096))
	if got, err := decodeInfo(good); err != nil || got != (Info{"1.2.1", 4096}) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, b := range [][]byte{nil, good[:8], good[8:], attr(infoVersion, 1), good[:len(good)-1]} {
		if got, err := decodeInfo(b); err == nil || got != (Info{}) {
			t.Errorf("% x: %+v, %v; want an error", b, got, err)
		}
	}
}

// genService draws any service that Validate takes.
func genService(t *rapid.T) Service {
	s := Service{
		Scheduler: rapid.SampledFrom([]Scheduler{"rr", "wlc", "mh", "fifteen_letters"}).Draw(t, "scheduler"),
		Flags:     rapid.SampledFrom([]ServiceFlags{0, FlagPersistent, FlagOnePacket, allFlags}).Draw(t, "flags"),
		Persistence: Persistence{
			Timeout: time.Duration(rapid.Uint32Range(1, uint32(maxTimeout/time.Second)).Draw(t, "timeout")) * time.Second,
			Engine:  rapid.SampledFrom([]string{"", "sip"}).Draw(t, "engine"),
		},
	}
	v6 := rapid.Bool().Draw(t, "v6")
	if v6 {
		s.Persistence.Netmask = NetmaskV6(rapid.Uint8Range(1, 128).Draw(t, "prefix"))
	} else {
		s.Persistence.Netmask = NetmaskV4(genAddr(t, false))
	}
	if rapid.Bool().Draw(t, "mark") {
		s.ServiceKey = MarkService(IPv4, rapid.Uint32Range(1, math.MaxUint32).Draw(t, "fwmark"))
		if v6 {
			s.Family = IPv6
		}
	} else {
		p := rapid.SampledFrom([]Protocol{TCP, UDP, SCTP}).Draw(t, "protocol")
		s.ServiceKey = AddrService(p, netip.AddrPortFrom(genAddr(t, v6), rapid.Uint16Range(1, math.MaxUint16).Draw(t, "port")))
	}
	s.Persistence.Netmask = s.Persistence.Netmask.canonical(s.Family)
	return s
}

func genAddr(t *rapid.T, v6 bool) netip.Addr {
	if v6 {
		b := [16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "v6"))
		b[0] = 0x20 // neither mapped nor multicast
		return netip.AddrFrom16(b)
	}
	b := [4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "v4"))
	b[0] = 10
	return netip.AddrFrom4(b)
}

func genStats(t *rapid.T) Stats {
	v := rapid.SliceOfN(rapid.Uint64(), 10, 10).Draw(t, "stats")
	return Stats{v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], v[9]}
}

func TestRoundTrip(t *testing.T) {
	n := make(names)
	rapid.Check(t, func(t *rapid.T) {
		s := ServiceStatus{Service: genService(t), Stats: genStats(t)}
		if err := s.Service.Validate(); err != nil {
			t.Fatalf("Validate(%+v): %v", s.Service, err)
		}
		got, err := decodeService(appendServiceStatus(nil, s), n)
		if err != nil || got != s {
			t.Fatalf("service read back\n%+v, %v; want\n%+v", got, err, s)
		}
		d := DestinationStatus{
			Destination: Destination{
				Address:        netip.AddrPortFrom(genAddr(t, rapid.Bool().Draw(t, "dest v6")), s.Address.Port()),
				Weight:         rapid.Uint32Range(0, math.MaxInt32).Draw(t, "weight"),
				Forward:        Tunnel,
				Tunnel:         TunnelOptions{TunnelGUE, rapid.Uint16Range(1, math.MaxUint16).Draw(t, "tunnel port"), ChecksumOn},
				UpperThreshold: math.MaxInt32,
				LowerThreshold: rapid.Uint32Range(0, math.MaxInt32).Draw(t, "lower"),
			},
			Conns: Conns{rapid.Uint32().Draw(t, "active"), rapid.Uint32().Draw(t, "inactive"), rapid.Uint32().Draw(t, "persistent")},
			Stats: genStats(t),
		}
		if err := d.Destination.Validate(s.ServiceKey); err != nil {
			t.Fatalf("Validate(%+v): %v", d.Destination, err)
		}
		var back DestinationStatus
		if err := decodeDest(appendDestStatus(nil, d), IPv4, &back); err != nil || back != d {
			t.Fatalf("real server read back\n%+v, %v; want\n%+v", back, err, d)
		}
	})
}
