package ipvstest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/lbd-project/lbd/ipvs"
)

// Table is what Conformance asks of a table. An ipvs.Client is one, and so is
// Fake.
type Table interface {
	Table(ctx context.Context) ([]ipvs.TableEntry, error)
	Services(ctx context.Context) ([]ipvs.ServiceStatus, error)
	Destinations(ctx context.Context, k ipvs.ServiceKey) ([]ipvs.DestinationStatus, error)
	Counts(ctx context.Context) ([]ipvs.DestinationCounts, error)
	Apply(ctx context.Context, ops []ipvs.Op) error
	Flush(ctx context.Context) error
	Timeouts(ctx context.Context) (ipvs.Timeouts, error)
	SetTimeouts(ctx context.Context, t ipvs.Timeouts) error
}

// Limited is a Table that cannot do all that the kernel's can. What Supports
// returns an error for, Apply must refuse with that reason and change nothing:
// Conformance checks this in the place of what the operation is for.
type Limited interface {
	Table
	Supports(op ipvs.Op) error
}

var (
	_ Table = (*Fake)(nil)
	_ Table = (*ipvs.Client)(nil)
)

// Conformance runs every case on an empty table from newTable, which cleans up
// through t.Cleanup. No address that the cases use may belong to the table's
// host, and the loopback device of the table's network namespace must be up.
func Conformance(t *testing.T, newTable func(t *testing.T) Table) {
	for _, c := range slices.Concat(readCases, serviceCases, destinationCases, errorCases, batchCases) {
		t.Run(c.name, func(t *testing.T) {
			c.run(&subject{T: t, table: newTable(t)})
		})
	}
}

// testCase is one case of the suite.
type testCase struct {
	name string
	run  func(s *subject)
}

// subject is the table under test in one case.
type subject struct {
	*testing.T
	table Table
}

// entry is what a table should hold of a service: its real servers in list order.
type entry struct {
	ipvs.Service
	destinations []ipvs.Destination
}

func (e entry) String() string {
	return fmt.Sprintf("%+v %+v", e.Service, e.destinations)
}

// apply executes ops, all of which must succeed.
func (s *subject) apply(ops ...ipvs.Op) {
	s.Helper()
	if err := s.table.Apply(s.Context(), ops); err != nil {
		s.Fatalf("Apply: %v", err)
	}
}

// supports says whether the table can do all of ops, each of which must be one
// that the kernel's can. What it cannot do it must refuse; the services that ops
// are about are there, or added by ops.
func (s *subject) supports(ops ...ipvs.Op) bool {
	s.Helper()
	limited, ok := s.table.(Limited)
	if !ok {
		return true
	}
	all := true
	for _, op := range ops {
		reason := limited.Supports(op)
		if reason == nil {
			continue
		}
		all = false
		before := s.text()
		failed := s.fails(op)
		if len(failed) != 1 || failed[0].Err.Err.Error() != reason.Error() {
			s.Errorf("%v %v: want the reason %q, got %v", op.Kind, op.Service.ServiceKey, reason, failed)
		}
		if after := s.text(); before != after {
			s.Errorf("%v %v changed the table\nfrom %s\nto   %s", op.Kind, op.Service.ServiceKey, before, after)
		}
	}
	return all
}

// text returns the table as text.
func (s *subject) text() string {
	s.Helper()
	table, err := s.table.Table(s.Context())
	if err != nil {
		s.Fatalf("Table: %v", err)
	}
	return fmt.Sprintf("%+v", table)
}

// fails executes ops and returns the failures; there must be some.
func (s *subject) fails(ops ...ipvs.Op) []ipvs.FailedOp {
	s.Helper()
	err := s.table.Apply(s.Context(), ops)
	var batch *ipvs.BatchError
	if !errors.As(err, &batch) || len(batch.Failed) == 0 {
		s.Fatalf("Apply: %v; want a BatchError", err)
	}
	for _, f := range batch.Failed {
		if f.Index < 0 || f.Index >= len(ops) || f.Err == nil {
			s.Fatalf("failure %+v of a batch of %d", f, len(ops))
		}
	}
	return batch.Failed
}

// holds checks the whole table, through every way to read it.
func (s *subject) holds(want ...entry) {
	s.Helper()
	ctx := s.Context()
	want = slices.Clone(want)
	slices.SortFunc(want, func(a, b entry) int { return a.Compare(b.ServiceKey) })
	table, err := s.table.Table(ctx)
	if err != nil {
		s.Fatalf("Table: %v", err)
	}
	var got []entry
	for _, e := range table {
		got = append(got, entry{e.Service, configs(e.Destinations)})
	}
	s.equal("Table", want, got)

	services, err := s.table.Services(ctx)
	if err != nil {
		s.Fatalf("Services: %v", err)
	}
	slices.SortFunc(services, func(a, b ipvs.ServiceStatus) int { return a.Compare(b.ServiceKey) })
	got = nil
	for _, sv := range services {
		list, err := s.table.Destinations(ctx, sv.ServiceKey)
		if err != nil {
			s.Fatalf("Destinations(%v): %v", sv.ServiceKey, err)
		}
		got = append(got, entry{sv.Service, configs(list)})
	}
	s.equal("Services and Destinations", want, got)
	s.counts(want)
}

// counts checks that Counts shows exactly the real servers of want, those of a
// service together and in list order.
func (s *subject) counts(want []entry) {
	s.Helper()
	list, err := s.table.Counts(s.Context())
	if err != nil {
		s.Fatalf("Counts: %v", err)
	}
	slices.SortStableFunc(list, func(a, b ipvs.DestinationCounts) int { return a.Service.Compare(b.Service) })
	var all []ipvs.DestinationCounts
	for _, e := range want {
		for _, d := range e.destinations {
			all = append(all, ipvs.DestinationCounts{Weight: d.Weight,
				DestinationKey: ipvs.DestinationKey{Service: e.ServiceKey, Address: d.Address}})
		}
	}
	if !slices.Equal(all, list) {
		s.Errorf("Counts\nwant %+v\ngot  %+v", all, list)
	}
}

func (s *subject) equal(what string, want, got []entry) {
	s.Helper()
	if len(want) != len(got) {
		s.Errorf("%s: want %d services, got %d: %v", what, len(want), len(got), got)
		return
	}
	for i := range want {
		w, g := want[i].Service.Canonical(), got[i].Service.Canonical()
		if w != g {
			s.Errorf("%s: service\nwant %+v\ngot  %+v", what, w, g)
		}
		if !slices.Equal(want[i].destinations, got[i].destinations) {
			s.Errorf("%s: real servers of %v\nwant %+v\ngot  %+v", what, w.ServiceKey,
				want[i].destinations, got[i].destinations)
		}
	}
}

func configs(list []ipvs.DestinationStatus) []ipvs.Destination {
	var c []ipvs.Destination
	for _, d := range list {
		c = append(c, d.Destination)
	}
	return c
}

// The services and real servers that most cases use.
var (
	web  = addrService(ipvs.TCP, "192.0.2.10:80")
	web6 = addrService(ipvs.TCP, "[2001:db8::10]:80")
)

func addrService(p ipvs.Protocol, address string) ipvs.Service {
	return ipvs.Service{ServiceKey: ipvs.AddrService(p, netip.MustParseAddrPort(address)), Scheduler: "wlc"}
}

func markService(f ipvs.Family, mark uint32) ipvs.Service {
	return ipvs.Service{ServiceKey: ipvs.MarkService(f, mark), Scheduler: "wlc"}
}

func server(address string, edits ...func(*ipvs.Destination)) ipvs.Destination {
	d := ipvs.Destination{Address: netip.MustParseAddrPort(address), Weight: 1}
	for _, edit := range edits {
		edit(&d)
	}
	return d
}

func forward(m ipvs.ForwardMethod) func(*ipvs.Destination) {
	return func(d *ipvs.Destination) { d.Forward = m }
}

func weight(w uint32) func(*ipvs.Destination) {
	return func(d *ipvs.Destination) { d.Weight = w }
}

func thresholds(upper, lower uint32) func(*ipvs.Destination) {
	return func(d *ipvs.Destination) { d.UpperThreshold, d.LowerThreshold = upper, lower }
}

func tunnel(kind ipvs.TunnelType, port uint16, c ipvs.TunnelChecksum) func(*ipvs.Destination) {
	return func(d *ipvs.Destination) {
		d.Forward = ipvs.Tunnel
		d.Tunnel = ipvs.TunnelOptions{Type: kind, Port: port, Checksum: c}
	}
}

func addService(s ipvs.Service) ipvs.Op { return ipvs.Op{Kind: ipvs.OpAddService, Service: s} }

func updateService(s ipvs.Service) ipvs.Op { return ipvs.Op{Kind: ipvs.OpUpdateService, Service: s} }

// deleteService names the service by its key alone.
func deleteService(s ipvs.Service) ipvs.Op {
	return ipvs.Op{Kind: ipvs.OpDeleteService, Service: ipvs.Service{ServiceKey: s.ServiceKey}}
}

func onServer(kind ipvs.OpKind, s ipvs.Service, d ipvs.Destination) ipvs.Op {
	return ipvs.Op{Kind: kind, Service: ipvs.Service{ServiceKey: s.ServiceKey}, Destination: d}
}

func add(s ipvs.Service, d ipvs.Destination) ipvs.Op { return onServer(ipvs.OpAddDestination, s, d) }

func update(s ipvs.Service, d ipvs.Destination) ipvs.Op {
	return onServer(ipvs.OpUpdateDestination, s, d)
}

// remove names the real server by its address alone.
func remove(s ipvs.Service, d ipvs.Destination) ipvs.Op {
	return onServer(ipvs.OpDeleteDestination, s, ipvs.Destination{Address: d.Address})
}
