package ipvstest

import (
	"context"
	"errors"
	"math"
	"syscall"
	"time"

	"github.com/lbd-project/lbd/ipvs"
)

// readCases are about what is read when there is little to read, and about the
// timeouts.
var readCases = []testCase{
	{"empty table", func(s *subject) {
		table, err := s.table.Table(s.Context())
		if table != nil || err != nil {
			s.Errorf("Table: want nil, nil, got %v, %v", table, err)
		}
		services, err := s.table.Services(s.Context())
		if services != nil || err != nil {
			s.Errorf("Services: want nil, nil, got %v, %v", services, err)
		}
		// The kernel dumps nothing, and no error, for a service that is not there.
		list, err := s.table.Destinations(s.Context(), web.ServiceKey)
		if list != nil || err != nil {
			s.Errorf("Destinations of no service: want nil, nil, got %v, %v", list, err)
		}
		counts, err := s.table.Counts(s.Context())
		if counts != nil || err != nil {
			s.Errorf("Counts: want nil, nil, got %v, %v", counts, err)
		}
	}},
	{"empty service", func(s *subject) {
		s.apply(addService(web))
		s.holds(entry{web, nil})
		list, err := s.table.Destinations(s.Context(), web.ServiceKey)
		if list != nil || err != nil {
			s.Errorf("Destinations: want nil, nil, got %v, %v", list, err)
		}
	}},
	{"idle counters are zero", func(s *subject) {
		s.apply(addService(web), add(web, server("10.0.0.1:80")))
		table, err := s.table.Table(s.Context())
		if err != nil || len(table) != 1 || len(table[0].Destinations) != 1 {
			s.Fatalf("Table: want one service with one real server, got %v, %v", table, err)
		}
		if table[0].Stats != (ipvs.Stats{}) {
			s.Errorf("statistics of the service: %+v", table[0].Stats)
		}
		d := table[0].Destinations[0]
		if d.Conns != (ipvs.Conns{}) || d.Stats != (ipvs.Stats{}) {
			s.Errorf("counts of the real server: %+v, %+v", d.Conns, d.Stats)
		}
	}},
	{"counts of marks", func(s *subject) {
		// A listing of counts may have to guess the family of a mark.
		four, six := markService(ipvs.IPv4, 7), markService(ipvs.IPv6, 7)
		only4, only6 := markService(ipvs.IPv4, 8), markService(ipvs.IPv6, 9)
		a, a6 := server("10.0.0.1:80", weight(4)), server("[2001:db8:1::1]:80", weight(6))
		t, t6 := server("10.0.0.2:80", forward(ipvs.Tunnel), weight(40)), server("[2001:db8:1::2]:80", forward(ipvs.Tunnel), weight(60))
		s.apply(addService(six), addService(four), addService(only6), addService(only4))
		if !s.supports(add(four, t6), add(six, t)) {
			return // each mark's real servers are of its own family then
		}
		s.apply(add(four, t6), add(four, a), add(six, a6), add(six, t), add(only4, t6), add(only6, t))
		s.holds(entry{four, []ipvs.Destination{a, t6}}, entry{six, []ipvs.Destination{t, a6}},
			entry{only4, []ipvs.Destination{t6}}, entry{only6, []ipvs.Destination{t}})
		// Only tunnels are left of both.
		s.apply(remove(four, a), remove(six, a6))
		s.holds(entry{four, []ipvs.Destination{t6}}, entry{six, []ipvs.Destination{t}},
			entry{only4, []ipvs.Destination{t6}}, entry{only6, []ipvs.Destination{t}})
		s.apply(deleteService(four), addService(four), add(four, t), add(six, t6))
		s.holds(entry{four, []ipvs.Destination{t}}, entry{six, []ipvs.Destination{t6, t}},
			entry{only4, []ipvs.Destination{t6}}, entry{only6, []ipvs.Destination{t}})
	}},
	{"flush", func(s *subject) {
		s.apply(addService(web), add(web, server("10.0.0.1:80")), addService(markService(ipvs.IPv6, 1)))
		for range 2 {
			if err := s.table.Flush(s.Context()); err != nil {
				s.Fatalf("Flush: %v", err)
			}
			s.holds()
		}
	}},
	{"cancelled context", func(s *subject) {
		ctx, cancel := context.WithCancel(s.Context())
		cancel()
		if err := s.table.Apply(ctx, []ipvs.Op{addService(web)}); !errors.Is(err, context.Canceled) {
			s.Errorf("Apply: want %v, got %v", context.Canceled, err)
		}
		if _, err := s.table.Table(ctx); !errors.Is(err, context.Canceled) {
			s.Errorf("Table: want %v, got %v", context.Canceled, err)
		}
		s.holds()
		s.apply(addService(web))
		s.holds(entry{web, nil})
	}},
	{"timeouts", func(s *subject) {
		ctx := s.Context()
		want := ipvs.Timeouts{TCP: 901 * time.Second, TCPFin: 121 * time.Second, UDP: 301 * time.Second}
		set := func(t ipvs.Timeouts) {
			s.Helper()
			if err := s.table.SetTimeouts(ctx, t); err != nil {
				s.Fatalf("SetTimeouts(%+v): %v", t, err)
			}
			if got, err := s.table.Timeouts(ctx); got != want || err != nil {
				s.Errorf("Timeouts after %+v: want %+v, got %+v, %v", t, want, got, err)
			}
		}
		set(want)
		want.TCP = time.Hour
		set(ipvs.Timeouts{TCP: time.Hour})
		want.TCPFin = time.Minute
		set(ipvs.Timeouts{TCPFin: time.Minute})
		want.UDP = time.Second
		set(ipvs.Timeouts{UDP: time.Second})
		set(ipvs.Timeouts{}) // zero keeps

		for _, t := range []ipvs.Timeouts{
			{TCP: math.MaxInt32 * time.Second},
			{TCP: time.Minute, TCPFin: math.MaxInt32 * time.Second},
			{TCP: time.Minute, UDP: math.MaxInt32 * time.Second},
		} {
			if err := s.table.SetTimeouts(ctx, t); !errors.Is(err, syscall.EINVAL) {
				s.Errorf("SetTimeouts(%+v): want %v, got %v", t, syscall.EINVAL, err)
			}
		}
		if got, err := s.table.Timeouts(ctx); got != want || err != nil {
			s.Errorf("Timeouts after refused ones: want %+v, got %+v, %v", want, got, err)
		}
	}},
}
