package ruleset

import (
	"net/netip"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/ipvs"
)

// BenchmarkNetnsPath is the processor time of a datagram of a known flow, from the
// client through the balancer to a real server: plain forwarding beside what lbd
// does. All of it runs in the sender's thread.
func BenchmarkNetnsPath(b *testing.B) {
	service := func(forward ipvs.ForwardMethod) Spec {
		s := routed()
		s.Services, s.Servers = s.Services[2:3], s.Servers[:1]
		v := &s.Services[0]
		v.Fallback = []Share{{mark1, 1}}
		s.Servers[0].Forward, s.Servers[0].Service = forward, v.ID
		if forward == ipvs.Masq {
			v.Forward = ipvs.Masq
		}
		return s
	}
	masq := service(ipvs.Masq)
	route := service(ipvs.Route)
	tunnel := service(ipvs.Tunnel)
	both := bothVersions()
	both.Services = append(both.Services, route.Services[0])
	both.Services[4].ID = 9
	both.Servers[0] = route.Servers[0]
	for _, test := range []struct {
		name string
		spec *Spec
		to   string
		// answered says that the flow's first datagram had an answer.
		answered bool
	}{
		{"forward/no tables", nil, "203.0.113.1:80", false},
		{"forward/tables", &masq, "203.0.113.1:80", false},
		{"forward/tables and untracked", &both, "203.0.113.1:80", false},
		{"masq", &masq, "198.51.100.100:80", false},
		{"masq/answered", &masq, "198.51.100.100:80", true},
		{"route", &route, "198.51.100.100:80", false},
		{"tunnel", &tunnel, "198.51.100.100:80", false},
	} {
		b.Run(test.name, func(b *testing.B) {
			l := newRouteLab(b, Options{FailOpen: true})
			l.lb.SetSysctl("net.ipv4.ip_forward", "1")
			l.lb.SetSysctl("net.ipv4.conf.all.send_redirects", "0")
			l.lb.SetSysctl("net.ipv4.conf.eth0.send_redirects", "0")
			l.client.AddRoute("203.0.113.0/24", "198.51.100.1")
			l.lb.AddRoute("203.0.113.0/24", "198.51.100.10")
			l.servers[0].AddAddr("lo", "203.0.113.1/32")
			if test.spec != nil {
				l.apply(*test.spec)
			} else {
				// Connection tracking costs what it costs, with or without lbd.
				nft(b, l.rules, `table ip other { chain in { type filter hook prerouting priority 0; ct state invalid drop; }
				}`)
			}
			if test.answered {
				l.serveUDP(l.servers[0], "198.51.100.10:80", "0")
				l.servers[0].AddRoute("198.51.100.2/32", "198.51.100.1")
			} else {
				l.sink()
			}
			b.ResetTimer()
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			var fd int
			err := l.client.Do(func() (err error) {
				if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
					return err
				}
				to := netip.MustParseAddrPort(test.to)
				return unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()})
			})
			if err != nil {
				b.Fatal(err)
			}
			defer unix.Close(fd)
			if test.answered {
				unix.Write(fd, []byte("?"))
				unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5})
				if _, err := unix.Read(fd, make([]byte, 1)); err != nil {
					b.Fatal(err)
				}
				l.sink()
			}
			before := threadTime(b)
			n := 0
			for b.Loop() {
				unix.Write(fd, []byte("x"))
				n++
			}
			b.ReportMetric(float64(threadTime(b)-before)/float64(n), "cpu-ns/packet")
		})
	}
}

func threadTime(b *testing.B) int64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// sink drops what arrives at the servers, so that nobody answers.
func (l *lab) sink() {
	l.t.Helper()
	for _, s := range l.servers {
		nft(l.t, l.rulesOf(s), `table ip sink { chain in { type filter hook prerouting priority -300; ip protocol { udp, ipencap } drop; }
		}`)
	}
}
