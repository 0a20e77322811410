package daemon

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/internal/api"
	"github.com/lbd-project/lbd/ipvs"
)

// connected is an engine with connections.
type connected struct {
	Engine
	conns []ipvs.Connection
	// ctx is that of the last reading.
	ctx context.Context
}

func (c *connected) Connections(ctx context.Context) iter.Seq2[ipvs.Connection, error] {
	c.ctx = ctx
	return func(yield func(ipvs.Connection, error) bool) {
		for _, conn := range c.conns {
			if !yield(conn, nil) {
				return
			}
		}
	}
}

// TestConnections names the services of connections: lbd's, foreign ones, and
// those that drain or are gone.
func TestConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		foreign := ipvs.Service{ServiceKey: key("192.0.2.9:80"), Scheduler: "rr"}
		marked := ipvs.Service{ServiceKey: ipvs.MarkService(ipvs.IPv4, 7), Scheduler: "rr"}
		err := r.table.Do(
			ipvs.Op{Kind: ipvs.OpAddService, Service: foreign},
			ipvs.Op{Kind: ipvs.OpAddService, Service: marked},
			ipvs.Op{Kind: ipvs.OpAddDestination, Service: marked, Destination: server(rs3, 5).Destination},
		)
		if err != nil {
			t.Fatal(err)
		}
		e := &connected{}
		for i, to := range [][2]string{{vip, rs2}, {"192.0.2.9:80", rs2}, {"192.0.2.66:80", rs3}, {"192.0.2.66:80", rs2}} {
			e.conns = append(e.conns, ipvs.Connection{
				Protocol: ipvs.TCP, Client: netip.AddrPortFrom(netip.MustParseAddr("198.51.100.1"), uint16(i)),
				Virtual: netip.MustParseAddrPort(to[0]), Server: netip.MustParseAddrPort(to[1]), State: "ESTABLISHED",
			})
		}
		r.wrap = func(in Engine) Engine {
			e.Engine = in
			return e
		}
		vs := service(vip, server(rs2, 1))
		vs.Name = "web"
		p := r.start(conf(vs))
		read := func(q api.ConnectionQuery) (lines []string) {
			t.Helper()
			conns, err := p.Connections(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			for c, err := range conns {
				lines = append(lines, fmt.Sprintf("%s %s %s %v", c.Service, c.Virtual, c.RealServer, err))
			}
			return lines
		}
		want := []string{
			"web " + vip + " " + rs2 + " <nil>",
			"TCP 192.0.2.9:80 192.0.2.9:80 " + rs2 + " <nil>",
			"FWM 7 192.0.2.66:80 " + rs3 + " <nil>",
			" 192.0.2.66:80 " + rs2 + " <nil>",
		}
		if diff := cmp.Diff(want, read(api.ConnectionQuery{})); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		for name, line := range map[string]int{"web": 0, "TCP " + vip: 0, "TCP 192.0.2.9:80": 1, "FWM 7": 2} {
			if diff := cmp.Diff(want[line:line+1], read(api.ConnectionQuery{Service: name})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
		if _, err := p.Connections(t.Context(), api.ConnectionQuery{Service: "nope"}); !errors.Is(err, api.ErrNotFound) {
			t.Errorf("want ErrNotFound, got %v", err)
		}
		if e.ctx != t.Context() {
			t.Error("a client that goes does not end the reading")
		}
	})
}
