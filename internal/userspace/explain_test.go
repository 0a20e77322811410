package userspace

import (
	"errors"
	"fmt"
	"testing"

	"github.com/lbd-project/lbd/ipvs"
)

// TestExplain sees that Explain tells the counts of now, and who is next, until
// that is no longer certain.
func TestExplain(t *testing.T) {
	g := newRig(t)
	if _, err := g.engine.Explain(t.Context(), web.ServiceKey); !errors.Is(err, ipvs.ErrServiceNotFound) {
		t.Errorf("absent service: want ErrServiceNotFound, got %v", err)
	}
	g.apply(addOp(web), add(web, one, 1), add(web, two, 2))
	for i := range 6 {
		x, err := g.engine.Explain(t.Context(), web.ServiceKey)
		if err != nil || !x.Certain || len(x.Standings) != 2 {
			t.Fatalf("want a certain next of two, got %+v, %v", x, err)
		}
		if got := g.connect(tupleTo(web, fmt.Sprintf("198.51.100.1:%d", 1000+i)), uint32(i)); got != x.Next.String() {
			t.Errorf("connection %d: explained %v, went to %s", i, x.Next, got)
		}
	}
	x, err := g.engine.Explain(t.Context(), web.ServiceKey)
	if err != nil {
		t.Fatal(err)
	}
	if s := x.Standings[0]; s.Address.String() != two || s.Active != 4 || s.Load != 4*257 || s.Weight != 2 {
		t.Errorf("standing of %s: want 4 active and 1028/2, got %+v", two, s)
	}
	hashed := web
	hashed.Scheduler = "sh"
	g.apply(ipvs.Op{Kind: ipvs.OpUpdateService, Service: hashed})
	if x, err := g.engine.Explain(t.Context(), web.ServiceKey); err != nil || x.Certain {
		t.Errorf("sh: want no certain next, got %+v, %v", x, err)
	}
}
