package ipvstest

import (
	"errors"
	"io/fs"
	"math"
	"syscall"
	"testing"
	"time"

	"github.com/lbd-project/lbd/ipvs"
)

// refused is an operation that must fail, with every error that its error must
// match.
type refused struct {
	name string
	op   ipvs.Op
	want []error
}

// The services and real servers that are there when a refused operation is tried.
var (
	here   = server("10.0.0.1:80")
	here6  = server("[2001:db8:1::1]:80")
	mixed  = server("[2001:db8:1::1]:80", forward(ipvs.Tunnel))
	absent = addrService(ipvs.TCP, "192.0.2.99:80")
)

func refusedOps() []refused {
	var (
		noService            = []error{ipvs.ErrServiceNotFound, fs.ErrNotExist, syscall.ESRCH}
		serviceExists        = []error{ipvs.ErrServiceExists, fs.ErrExist, syscall.EEXIST}
		noDestination        = []error{ipvs.ErrDestinationNotFound, fs.ErrNotExist, syscall.ENOENT}
		exists               = []error{ipvs.ErrDestinationExists, fs.ErrExist, syscall.EEXIST}
		noScheduler          = []error{ipvs.ErrSchedulerNotFound, syscall.ENOENT}
		noEngine             = []error{syscall.ENOENT}
		invalid              = []error{syscall.EINVAL}
		outOfRange           = []error{syscall.ERANGE}
		noFamily             = []error{syscall.EAFNOSUPPORT}
		unknown              = []error{syscall.EOPNOTSUPP}
		other                = server("10.0.0.9:80")
		scheduler            = func(name ipvs.Scheduler) func(*ipvs.Service) { return func(s *ipvs.Service) { s.Scheduler = name } }
		engine               = func(s *ipvs.Service) { s.Persistence.Engine = "nosuch" }
		family               = func(s *ipvs.Service) { s.Family = 7 }
		newService           = addrService(ipvs.TCP, "192.0.2.11:80")
		newService6          = addrService(ipvs.TCP, "[2001:db8::11]:80")
		tooLong              = ipvs.Scheduler("sixteen-letters-")
		longest              = tooLong[:maxSchedulerName]
		beyond        uint32 = math.MaxInt32 + 1
	)
	list := []refused{
		{"add a service twice", addService(web), serviceExists},
		{"add a service twice with other attributes", addService(with(web, scheduler("rr"))), serviceExists},
		{"edit an absent service", updateService(absent), noService},
		{"delete an absent service", deleteService(absent), noService},
		{"service with the other protocol", deleteService(addrService(ipvs.UDP, "192.0.2.10:80")), noService},
		{"mark of the other family", deleteService(markService(ipvs.IPv6, 7)), noService},
		{"add a service with an unknown scheduler", addService(with(newService, scheduler("nosuch"))), noScheduler},
		{"edit a service with an unknown scheduler", updateService(with(web, scheduler("nosuch"))), noScheduler},
		{"add a service without scheduler", addService(with(newService, scheduler(""))), noScheduler},
		{"edit a service without scheduler", updateService(with(web, scheduler(""))), noScheduler},
		{"longest scheduler name", addService(with(newService, scheduler(longest))), noScheduler},
		{"scheduler name too long", addService(with(newService, scheduler(tooLong))), invalid},
		{"scheduler name too long in an edit", updateService(with(web, scheduler(tooLong))), invalid},
		{"add a service with an unknown persistence engine", addService(with(newService, engine)), noEngine},
		{"edit a service with an unknown persistence engine", updateService(with(web, engine)), noEngine},
		{"add a service with prefix length 0", addService(persistent(newService6, time.Minute, ipvs.NetmaskV6(0))), invalid},
		{"add a service with prefix length 129", addService(persistent(newService6, time.Minute, ipvs.NetmaskV6(129))), invalid},
		{"edit a service with prefix length 0", updateService(persistent(web6, time.Minute, ipvs.NetmaskV6(0))), invalid},
		{"edit a service with prefix length 129", updateService(persistent(web6, time.Minute, ipvs.NetmaskV6(129))), invalid},
		{"add a service of an unknown family", addService(with(newService, family)), noFamily},
		{"edit a service of an unknown family", updateService(with(web, family)), noFamily},
		{"delete a service of an unknown family", deleteService(with(web, family)), noFamily},
		{"add to a service of an unknown family", add(with(web, family), other), noFamily},

		{"add to an absent service", add(absent, here), noService},
		{"edit in an absent service", update(absent, here), noService},
		{"delete from an absent service", remove(absent, here), noService},
		{"add a real server twice", add(web, here), exists},
		{"add a real server twice with other attributes", add(web, server("10.0.0.1:80", weight(9))), exists},
		{"edit an absent real server", update(web, other), noDestination},
		{"delete an absent real server", remove(web, other), noDestination},
		{"delete a real server by another port", remove(web, server("10.0.0.1:81")), noDestination},
		{"edit a real server of another service", update(web6, server("[2001:db8:1::9]:80")), noDestination},
		{"edit to masquerading across families", update(web, here6), invalid},
		{"edit to direct routing across families", update(web, server("[2001:db8:1::1]:80", forward(ipvs.Route))), invalid},
		{"unknown operation", ipvs.Op{Kind: 99, Service: web}, unknown},
		{"no operation", ipvs.Op{Service: web}, unknown},
	}
	for name, d := range map[string]struct {
		ipvs.Destination
		want []error
	}{
		"weight beyond 31 bits":             {server("10.0.0.1:80", weight(beyond)), outOfRange},
		"highest weight":                    {server("10.0.0.1:80", weight(math.MaxUint32)), outOfRange},
		"lower threshold above upper":       {server("10.0.0.1:80", thresholds(5, 6)), outOfRange},
		"lower threshold without upper":     {server("10.0.0.1:80", thresholds(0, 1)), outOfRange},
		"upper threshold beyond 31 bits":    {server("10.0.0.1:80", thresholds(beyond, 0)), invalid},
		"gue without port":                  {server("10.0.0.1:80", tunnel(ipvs.TunnelGUE, 0, ipvs.ChecksumNone)), invalid},
		"no address":                        {ipvs.Destination{Weight: 1}, invalid},
		"both thresholds beyond 31 bits":    {server("10.0.0.1:80", thresholds(beyond, beyond)), invalid},
		"gue without port, with a checksum": {server("10.0.0.1:80", tunnel(ipvs.TunnelGUE, 0, ipvs.ChecksumOn)), invalid},
	} {
		list = append(list, refused{"edit: " + name, update(web, d.Destination), d.want})
		if d.Address.IsValid() {
			d.Address = other.Address
		}
		list = append(list, refused{"add: " + name, add(web, d.Destination), d.want})
	}
	for name, d := range map[string]ipvs.Destination{
		"0.0.0.0":                        server("0.0.0.0:80"),
		"multicast":                      server("224.0.0.1:80"),
		"broadcast":                      server("255.255.255.255:80"),
		"masquerading across families":   server("[2001:db8:1::9]:80"),
		"direct routing across families": server("[2001:db8:1::9]:80", forward(ipvs.Route)),
	} {
		list = append(list, refused{"add: " + name, add(web, d), invalid})
	}
	for name, d := range map[string]ipvs.Destination{
		"::":                             server("[::]:80"),
		"IPv6 multicast":                 server("[ff02::1]:80"),
		"IPv6 link-local":                server("[fe80::1]:80"),
		"IPv4 masquerading in IPv6":      server("10.0.0.9:80"),
		"IPv4 direct routing in IPv6":    server("10.0.0.9:80", forward(ipvs.Route)),
		"IPv6 multicast through tunnels": server("[ff05::1]:80", forward(ipvs.Tunnel)),
	} {
		list = append(list, refused{"add: " + name, add(web6, d), invalid})
	}
	return list
}

// errorCases are operations that must fail: each fails with the right errors,
// names itself, and changes nothing, so that one table does for all of them.
var errorCases = []testCase{
	{"refused", func(s *subject) {
		mark := markService(ipvs.IPv4, 7)
		s.apply(addService(web), addService(web6), addService(mark))
		list := []ipvs.Destination{here}
		if s.supports(add(web, mixed)) {
			s.apply(add(web, mixed))
			list = append(list, mixed)
		}
		s.apply(add(web, here), add(web6, here6))
		unchanged := []entry{{web, list}, {web6, []ipvs.Destination{here6}}, {mark, nil}}
		for _, r := range refusedOps() {
			s.Run(r.name, func(t *testing.T) {
				s := &subject{T: t, table: s.table}
				s.refuses(r)
				s.holds(unchanged...)
			})
		}
	}},
}

// refuses checks that an operation fails as it should.
func (s *subject) refuses(r refused) {
	s.Helper()
	failed := s.fails(r.op)
	if len(failed) != 1 || failed[0].Index != 0 {
		s.Fatalf("failures: want one of operation 0, got %+v", failed)
	}
	err := failed[0].Err
	for _, want := range r.want {
		if !errors.Is(err, want) {
			s.Errorf("error %q does not match %q", err, want)
		}
	}
	for _, other := range sentinels {
		if len(r.want) > 1 && other != r.want[0] && errors.Is(err, other) {
			s.Errorf("error %q matches %q too", err, other)
		}
	}
	if err.Op != r.op.Kind.String() {
		s.Errorf("Op: want %q, got %q", r.op.Kind, err.Op)
	}
	if err.Service != r.op.Service.ServiceKey {
		s.Errorf("Service: want %v, got %v", r.op.Service.ServiceKey, err.Service)
	}
	if err.Destination != r.op.Destination.Address {
		s.Errorf("Destination: want %v, got %v", r.op.Destination.Address, err.Destination)
	}
}

var sentinels = []error{
	ipvs.ErrServiceNotFound, ipvs.ErrServiceExists, ipvs.ErrDestinationNotFound,
	ipvs.ErrDestinationExists, ipvs.ErrSchedulerNotFound, ipvs.ErrNotAvailable,
}
