package e2e

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/lbd-project/lbd/internal/netnstest"
	"github.com/lbd-project/lbd/internal/userspace"
	"github.com/lbd-project/lbd/ipvs"
)

var errFewAnswers = errors.New("less than 20 answers")

// memoryStore keeps the state of engines, one after another.
type memoryStore struct{ b []byte }

func (m *memoryStore) Load() ([]byte, error) { return m.b, nil }
func (m *memoryStore) Save(b []byte) error   { m.b = append([]byte(nil), b...); return nil }

// userspaceOptions are those of an engine in the lab's balancer.
func (l *Lab) userspaceOptions() userspace.Options {
	return userspace.Options{
		NetNS: l.Balancer.FD(), Enter: l.Balancer.Do, QueueBase: 100, Queues: 1, FailOpen: true, Store: new(memoryStore),
	}
}

// TestNetnsReopen opens engines one after another while clients come: the rules
// of hundreds of services are written anew each time, and no client may be
// refused meanwhile.
func TestNetnsReopen(t *testing.T) {
	netnstest.Require(t, "netns", "nfqueue")
	testReopen(t)
}

// TestKernelReopen is TestNetnsReopen on a kernel that forgets the intervals
// beside those that are being written: Linux 6.1 refused a client in one opening
// of three.
func TestKernelReopen(t *testing.T) {
	netnstest.Require(t, "netns", "nfqueue")
	testReopen(t)
}

func testReopen(t *testing.T) {
	t.Helper()
	l := NewLab(t, Masq, 2)
	l.AddVIP(VIP4)
	o := l.userspaceOptions()
	e, err := userspace.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	var ops []ipvs.Op
	for _, port := range append([]uint16{HTTPPort}, otherPorts(300)...) {
		ops = append(ops, addPort(port)...)
	}
	if err := e.Apply(t.Context(), ops); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	s := l.StartStream("http://"+VIP4+"/", 4, time.Millisecond)
	defer s.Stop()
	for i := range 6 {
		s.Reset()
		e, err := userspace.Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() error {
			if r := s.Result(); r.Failed > 0 || r.Good >= 20 {
				return nil
			}
			return errFewAnswers
		})
		if r := s.Result(); r.Failed > 0 {
			t.Errorf("opening %d: %d of %d requests failed, the last: %v", i, r.Failed, r.Good+r.Failed, r.LastErr)
		}
	}
}

// otherPorts returns ports that no client comes to.
func otherPorts(n uint16) []uint16 {
	list := make([]uint16, n)
	for i := range list {
		list[i] = 1000 + uint16(i)
	}
	return list
}

// addPort returns what adds a service on a port of VIP4 with the servers of a Lab
// and some that are not there, with weight 0 on the port of clients.
func addPort(port uint16) []ipvs.Op {
	vip := netip.AddrPortFrom(netip.MustParseAddr(VIP4), port)
	svc := ipvs.Service{ServiceKey: ipvs.AddrService(ipvs.TCP, vip), Scheduler: "wlc"}
	ops := []ipvs.Op{{Kind: ipvs.OpAddService, Service: svc}}
	for i := range 10 {
		d := ipvs.Destination{Address: netip.AddrPortFrom(serverAddr(serverBack4, i), port), Weight: 1}
		if port == HTTPPort && i >= 2 {
			d.Weight = 0
		}
		ops = append(ops, ipvs.Op{Kind: ipvs.OpAddDestination, Service: svc, Destination: d})
	}
	return ops
}
