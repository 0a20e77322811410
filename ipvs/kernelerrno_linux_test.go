package ipvs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/netip"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/internal/netnstest"
)

// TestKernelErrnos pins the errno of every refusal that the error table reads
// something into.
func TestKernelErrnos(t *testing.T) {
	c, _ := kernelClient(t)
	web, absent := service(kernelV4), service(AddrService(TCP, netip.MustParseAddrPort("192.0.2.99:80")))
	d, gone := dest("10.0.0.2:80", Masq), dest("10.0.0.99:80", Masq)
	mustApply(t, c, addService(web), addService(service(kernelV6)), addDest(kernelV4, d))
	other := func(change func(*Service)) Service {
		s := service(AddrService(UDP, netip.MustParseAddrPort("192.0.2.11:53")))
		change(&s)
		return s
	}
	v6 := func(prefix uint8) Service {
		s := service(AddrService(UDP, netip.MustParseAddrPort("[2001:db8::11]:53")))
		s.Persistence.Netmask = NetmaskV6(prefix)
		return s
	}
	with := func(change func(*Destination)) Destination {
		d := dest("10.0.0.3:80", Masq)
		change(&d)
		return d
	}
	at := func(addr string) Destination { return dest(addr, Masq) }
	op := func(kind OpKind, s Service, d Destination) Op { return Op{Kind: kind, Service: s, Destination: d} }
	for _, tt := range []struct {
		name string
		op   Op
		want syscall.Errno
	}{
		{"add service twice", op(OpAddService, web, d), unix.EEXIST},
		{"add destination twice", op(OpAddDestination, web, d), unix.EEXIST},

		{"update absent service", op(OpUpdateService, absent, d), unix.ESRCH},
		{"delete absent service", op(OpDeleteService, absent, d), unix.ESRCH},
		{"add destination to absent service", op(OpAddDestination, absent, d), unix.ESRCH},
		{"update destination of absent service", op(OpUpdateDestination, absent, d), unix.ESRCH},
		{"delete destination of absent service", op(OpDeleteDestination, absent, d), unix.ESRCH},

		{"update absent destination", op(OpUpdateDestination, web, gone), unix.ENOENT},
		{"delete absent destination", op(OpDeleteDestination, web, gone), unix.ENOENT},
		{"unknown scheduler", op(OpAddService, other(func(s *Service) { s.Scheduler = "nosuch" }), d), unix.ENOENT},
		{"unknown scheduler in update", op(OpUpdateService, Service{ServiceKey: kernelV4, Scheduler: "nosuch"}, d), unix.ENOENT},
		{"no scheduler", op(OpAddService, other(func(s *Service) { s.Scheduler = "" }), d), unix.ENOENT},
		{"unknown engine", op(OpAddService, other(func(s *Service) { s.Persistence.Engine = "nosuch" }), d), unix.ENOENT},

		{"weight below 0", op(OpAddDestination, web, with(func(d *Destination) { d.Weight = 1 << 31 })), unix.ERANGE},
		{"weight below 0 in update", op(OpUpdateDestination, web, with(func(d *Destination) { d.Address, d.Weight = at("10.0.0.2:80").Address, math.MaxUint32 })), unix.ERANGE},
		{"lower above upper", op(OpAddDestination, web, with(func(d *Destination) { d.LowerThreshold = 1 })), unix.ERANGE},

		{"family of service", op(OpAddService, Service{ServiceKey: ServiceKey{Family: 7, FWMark: 7}, Scheduler: "rr"}, d), unix.EAFNOSUPPORT},

		{"scheduler name of 16", op(OpAddService, other(func(s *Service) { s.Scheduler = "0123456789abcdef" }), d), unix.EINVAL},
		{"prefix length 0", op(OpAddService, v6(0), d), unix.EINVAL},
		{"prefix length 129", op(OpAddService, v6(129), d), unix.EINVAL},
		{"0.0.0.0", op(OpAddDestination, web, at("0.0.0.0:80")), unix.EINVAL},
		{"multicast", op(OpAddDestination, web, at("224.0.0.1:80")), unix.EINVAL},
		{"broadcast", op(OpAddDestination, web, at("255.255.255.255:80")), unix.EINVAL},
		{"v6 link-local", op(OpAddDestination, service(kernelV6), at("[fe80::2]:80")), unix.EINVAL},
		{"v6 multicast", op(OpAddDestination, service(kernelV6), at("[ff02::2]:80")), unix.EINVAL},
		{"mixed family by masq", op(OpAddDestination, web, at("[2001:db8::2]:80")), unix.EINVAL},
		{"mixed family by route", op(OpAddDestination, service(kernelV6), dest("10.0.0.3:80", Route)), unix.EINVAL},
		{"gue without port", op(OpAddDestination, web, with(func(d *Destination) { d.Forward, d.Tunnel.Type = Tunnel, TunnelGUE })), unix.EINVAL},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := raw(t, c, tt.op); got != tt.want {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
	// Nothing of it has changed anything.
	checkDests(t, c, kernelV4, d)
	if table := mustTable(t, c); len(table) != 2 {
		t.Errorf("%d services, want 2", len(table))
	}

	if got := rawBytes(t, c, 99, nil); got != unix.EOPNOTSUPP {
		t.Errorf("unknown command: %v, want %v", got, unix.EOPNOTSUPP)
	}
	if got := rawBytes(t, c, cmdNewDest, func(b []byte) []byte {
		b = appendServiceKeyNest(b, kernelV4)
		return append(b, nest(attrDest, attr(destAddr, 10, 0, 0, 9), appendPort(nil, destPort, 80), appendU16(nil, destAddrFamily, 7))...)
	}); got != unix.EINVAL {
		// The attributes of a whole real server are missed before the family.
		t.Errorf("destination without attributes: %v, want %v", got, unix.EINVAL)
	}
	if got := rawBytes(t, c, cmdDelDest, func(b []byte) []byte {
		b = appendServiceKeyNest(b, kernelV4)
		return append(b, nest(attrDest, attr(destAddr, 10, 0, 0, 9), appendPort(nil, destPort, 80), appendU16(nil, destAddrFamily, 7))...)
	}); got != unix.EAFNOSUPPORT {
		t.Errorf("family of destination: %v, want %v", got, unix.EAFNOSUPPORT)
	}
	if got := rawBytes(t, c, cmdZero, func(b []byte) []byte { return appendServiceKeyNest(b, absent.ServiceKey) }); got != unix.ESRCH {
		t.Errorf("zero of absent service: %v, want %v", got, unix.ESRCH)
	}
	if _, err := c.Service(t.Context(), absent.ServiceKey); !errors.Is(err, ErrServiceNotFound) || !errors.Is(err, unix.ESRCH) {
		t.Errorf("get absent service: %v, want %v", err, unix.ESRCH)
	}
}

// TestKernelLargeThreshold has a threshold that newer kernels (6.1.187) refuse
// and older ones take; the client refuses it on all.
func TestKernelLargeThreshold(t *testing.T) {
	c, _ := kernelClient(t)
	d := dest("10.0.0.2:80", Masq)
	d.UpperThreshold = 1 << 31
	mustApply(t, c, addService(service(kernelV4)))
	if got := raw(t, c, addDest(kernelV4, d)); got != 0 && got != unix.EINVAL {
		t.Errorf("kernel: %v, want none or %v", got, unix.EINVAL)
	}
	if err := c.AddDestination(t.Context(), kernelV4, d); !errors.Is(err, unix.EINVAL) {
		t.Errorf("client: %v, want %v", err, unix.EINVAL)
	}
}

// TestKernelMissingAttributes pins that there is no partial update: what a write
// leaves out is either refused or reset.
func TestKernelMissingAttributes(t *testing.T) {
	c, _ := kernelClient(t)
	mustApply(t, c, addService(service(kernelV4)))
	drop := func(b []byte, typ uint16) []byte {
		var kept []byte
		for a := (attrs{b: b}); a.next(); {
			if a.typ != typ {
				kept = append(kept, attr(a.typ, a.val...)...)
			}
		}
		return kept
	}
	s := service(kernelV4)
	svc := appendService(nil, &s)[attrHeaderLen:]
	for _, typ := range []uint16{svcAF, svcProtocol, svcAddr, svcPort, svcSchedName, svcFlags, svcTimeout, svcNetmask} {
		if got := rawBytes(t, c, cmdSetService, func(b []byte) []byte { return append(b, nest(attrService, drop(svc, typ))...) }); got != unix.EINVAL {
			t.Errorf("service without attribute %d: %v, want %v", typ, got, unix.EINVAL)
		}
	}

	tunnel := dest("10.0.0.2:80", Tunnel)
	tunnel.Tunnel = TunnelOptions{TunnelGUE, 6080, ChecksumOn}
	mustApply(t, c, addDest(kernelV4, tunnel))
	full := appendDest(nil, &tunnel)[attrHeaderLen:]
	write := func(d []byte) syscall.Errno {
		return rawBytes(t, c, cmdSetDest, func(b []byte) []byte {
			return append(appendServiceKeyNest(b, kernelV4), nest(attrDest, d)...)
		})
	}
	for _, typ := range []uint16{destAddr, destPort, destFwdMethod, destWeight, destUThresh, destLThresh} {
		if got := write(drop(full, typ)); got != unix.EINVAL {
			t.Errorf("real server without attribute %d: %v, want %v", typ, got, unix.EINVAL)
		}
	}
	checkDests(t, c, kernelV4, tunnel)
	// The tunnel's may be left out, which makes it an ipip tunnel.
	if got := write(drop(drop(drop(full, destTunType), destTunPort), destTunFlags)); got != 0 {
		t.Errorf("real server without tunnel attributes: %v", got)
	}
	checkDests(t, c, kernelV4, dest("10.0.0.2:80", Tunnel))
}

// TestKernelAccepts pins what the kernel takes although it makes no sense, which
// is why Validate exists. A kernel that refuses one of them is no fault.
func TestKernelAccepts(t *testing.T) {
	c, _ := kernelClient(t)
	mustApply(t, c, addService(service(kernelV4)))
	svc := func(key ServiceKey, change func(*Service)) Op {
		s := service(key)
		if change != nil {
			change(&s)
		}
		return addService(s)
	}
	udp := func(n byte) ServiceKey {
		return AddrService(UDP, netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, n}), 53))
	}
	srv := func(n byte, change func(*Destination)) Op {
		d := Destination{Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, n}), 80), Weight: 1}
		change(&d)
		return addDest(kernelV4, d)
	}
	for _, tt := range []struct {
		name string
		op   Op
	}{
		{"protocol 99", svc(AddrService(99, kernelV4.Address), nil)},
		{"port 0 without persistence", svc(AddrService(TCP, netip.MustParseAddrPort("192.0.2.10:0")), nil)},
		{"persistence timeout 0", svc(udp(1), func(s *Service) { s.Flags = FlagPersistent })},
		{"unknown flag bits", svc(udp(2), func(s *Service) { s.Flags = 0x8000 })},
		{"scheduler none", svc(udp(3), func(s *Service) { s.Scheduler = "none" })},
		{"method bypass", srv(1, func(d *Destination) { d.Forward = Bypass })},
		{"method 7", srv(2, func(d *Destination) { d.Forward = 7 })},
		{"tunnel type 9", srv(3, func(d *Destination) { d.Forward, d.Tunnel.Type = Tunnel, 9 })},
		{"gue on masq", srv(4, func(d *Destination) { d.Tunnel = TunnelOptions{Type: TunnelGUE, Port: 1} })},
		{"route to another port", srv(5, func(d *Destination) {
			d.Forward, d.Address = Route, netip.AddrPortFrom(d.Address.Addr(), 81)
		})},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := raw(t, c, tt.op); got != 0 {
				t.Errorf("refused: %v", got)
			}
			if err := tt.op.Validate(); err == nil {
				t.Error("Validate takes it")
			}
		})
	}
	// fwmark 0 is read as no firewall mark: the service of address 0.
	if got := rawBytes(t, c, cmdNewService, func(b []byte) []byte {
		s := service(MarkService(IPv4, 1))
		body := appendService(nil, &s)[attrHeaderLen:]
		var attrs0 []byte
		for a := (attrs{b: body}); a.next(); {
			if a.typ == svcFWMark {
				attrs0 = append(attrs0, appendU32(nil, svcFWMark, 0)...)
			} else {
				attrs0 = append(attrs0, attr(a.typ, a.val...)...)
			}
		}
		return append(b, nest(attrService, attrs0)...)
	}); got != 0 {
		t.Errorf("fwmark 0 refused: %v", got)
	}
	// All of it can be read.
	table := mustTable(t, c)
	if _, err := c.Counts(t.Context()); err != nil {
		t.Errorf("counts: %v", err)
	}
	if len(table) != 7 {
		t.Errorf("%d services, want 7", len(table))
	}
	if want := (ServiceKey{Family: IPv4, Protocol: TCP, Address: netip.MustParseAddrPort("0.0.0.0:0")}); table[0].ServiceKey != want {
		t.Errorf("service of fwmark 0 reads as %v, want %v", table[0].ServiceKey, want)
	}
	// And deleted, a mapped address included.
	mapped := service(ServiceKey{Family: IPv6, Protocol: TCP, Address: netip.MustParseAddrPort("[::ffff:192.0.2.1]:80")})
	if got := raw(t, c, addService(mapped)); got != 0 {
		t.Errorf("mapped address refused: %v", got)
	}
	var ops []Op
	for _, e := range mustTable(t, c) {
		for _, d := range e.Destinations {
			ops = append(ops, Op{Kind: OpDeleteDestination, Service: e.Service, Destination: d.Destination})
		}
		ops = append(ops, Op{Kind: OpDeleteService, Service: e.Service})
	}
	mustApply(t, c, ops...)
	if table := mustTable(t, c); table != nil {
		t.Errorf("left after deleting everything: %+v", table)
	}
}

func TestKernelErrors(t *testing.T) {
	c, _ := kernelClient(t)
	ctx := t.Context()
	d := dest("10.0.0.2:80", Masq)
	mustApply(t, c, addService(service(kernelV4)), addDest(kernelV4, d))
	odd := service(kernelV6)
	odd.Scheduler = "nosuch"
	engine := service(kernelV6)
	engine.Persistence.Engine = "nosuch"
	absent := AddrService(UDP, kernelV4.Address)
	for _, tt := range []struct {
		name string
		err  error
		is   error
		text string
	}{
		{"AddService", c.AddService(ctx, service(kernelV4)), ErrServiceExists, "add service TCP 192.0.2.10:80: service exists"},
		{"AddService, scheduler", c.AddService(ctx, odd), ErrSchedulerNotFound,
			"add service TCP [2001:db8::10]:80: scheduler not found (nosuch; is there a module ip_vs_nosuch?)"},
		{"AddService, engine", c.AddService(ctx, engine), ErrSchedulerNotFound, "scheduler not found (rr, or persistence engine nosuch)"},
		{"UpdateService", c.UpdateService(ctx, service(kernelV6)), ErrServiceNotFound, "update service TCP [2001:db8::10]:80: service not found"},
		{"DeleteService", c.DeleteService(ctx, kernelV6), ErrServiceNotFound, "delete service"},
		{"AddDestination", c.AddDestination(ctx, kernelV4, d), ErrDestinationExists, "add destination 10.0.0.2:80 of TCP 192.0.2.10:80: real server exists"},
		{"AddDestination, service", c.AddDestination(ctx, absent, d), ErrServiceNotFound, "service not found"},
		{"UpdateDestination", c.UpdateDestination(ctx, kernelV4, dest("10.0.0.3:80", Masq)), ErrDestinationNotFound, "real server not found"},
		{"DeleteDestination", c.DeleteDestination(ctx, DestinationKey{absent, d.Address}), ErrServiceNotFound, "service not found"},
		{"SetWeight", c.SetWeight(ctx, DestinationKey{kernelV4, netip.MustParseAddrPort("10.0.0.3:80")}, 1), ErrDestinationNotFound, "set weight 10.0.0.3:80"},
		{"SetWeight, service", c.SetWeight(ctx, DestinationKey{absent, d.Address}, 1), ErrServiceNotFound, "service not found"},
		{"Zero", c.Zero(ctx, absent), ErrServiceNotFound, "zero service UDP 192.0.2.10:80"},
		{"SetTimeouts", c.SetTimeouts(ctx, Timeouts{TCP: math.MaxInt32 * time.Second}), unix.EINVAL, "set timeouts: invalid argument (a timeout is too large)"},
		{"StopSyncDaemon", c.StopSyncDaemon(ctx, SyncMaster), ErrSyncDaemonNotRunning, "stop sync daemon: sync daemon is not running"},
		{"StartSyncDaemon", c.StartSyncDaemon(ctx, SyncDaemon{State: SyncMaster, Interface: "nosuch"}), unix.ENODEV, "does not exist"},
	} {
		if !errors.Is(tt.err, tt.is) || !strings.Contains(fmt.Sprint(tt.err), tt.text) {
			t.Errorf("%s: %v, want %v and %q", tt.name, tt.err, tt.is, tt.text)
		}
	}
}

// withoutCaps calls fn in the namespace on a thread that has lost every
// capability.
func withoutCaps(ns *netnstest.NS, fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		if err := unix.Setns(ns.FD(), unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		if err := unix.Capset(&hdr, &none[0]); err != nil {
			done <- err
			return
		}
		done <- fn()
	}()
	return <-done
}

// TestKernelPermission pins that every command needs CAP_NET_ADMIN, those that
// read too.
func TestKernelPermission(t *testing.T) {
	c, ns := kernelClient(t)
	mustApply(t, c, addService(service(kernelV4)))
	err := withoutCaps(ns, func() error {
		c, err := dialHere()
		if err != nil {
			return fmt.Errorf("open: %w", err)
		}
		defer c.Close()
		ctx := context.Background()
		_, terr := c.Table(ctx)
		_, ierr := c.Info(ctx)
		for what, err := range map[string]error{
			"read table": terr, "get info": ierr, "add service": c.AddService(ctx, service(kernelV6)), "flush": c.Flush(ctx),
		} {
			if !errors.Is(err, fs.ErrPermission) || !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "needs CAP_NET_ADMIN") {
				t.Errorf("%s: %v, want a permission error", what, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(mustTable(t, c)); n != 1 {
		t.Errorf("%d services, want 1", n)
	}
}
