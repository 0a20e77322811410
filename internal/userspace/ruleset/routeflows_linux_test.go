package ruleset

import (
	"net"
	"testing"
	"time"
)

// TestNetnsFlows lists a connection by direct routing while it is open and after
// it closed, and deletes it.
func TestNetnsFlows(t *testing.T) {
	l := newRouteLab(t, Options{FailOpen: true})
	l.apply(routed())
	list := func() map[string]Flow {
		t.Helper()
		flows := make(map[string]Flow)
		err := l.rules.Flows(t.Context(), func(f *Flow) { flows[f.Tuple.String()] = *f })
		if err != nil {
			t.Fatal(err)
		}
		return flows
	}
	if got := list(); len(got) != 0 {
		t.Errorf("before the first connection: %v", got)
	}
	for _, addr := range routeAddresses {
		c, name := l.dial("tcp", addr)
		if err := echo(c, waitTime); err != nil {
			t.Fatal(err)
		}
		local := c.LocalAddr().(*net.TCPAddr).AddrPort()
		key := "6 " + local.String() + " > " + addr
		f, ok := list()[key]
		if !ok || f.Inactive || f.Expires < 14*time.Minute {
			t.Errorf("%s, open: %+v, %v", key, f, ok)
		}
		server := -1
		for i, s := range routed().Servers {
			if s.Mark == f.Mark {
				server = i
			}
		}
		if server < 0 || name != []string{"0", "1"}[server%2] {
			t.Errorf("%s went to server %s, and has mark %#x", key, name, f.Mark)
		}
		c.Close()
		for end := time.Now().Add(waitTime); time.Now().Before(end) && !f.Inactive; time.Sleep(time.Millisecond) {
			f = list()[key]
		}
		if !f.Inactive || f.Expires > 2*time.Minute {
			t.Errorf("%s, closed: %+v", key, f)
		}
		if err := l.rules.DeleteFlows(t.Context(), f.Mark^0x300); err != nil {
			t.Fatal(err)
		}
		if _, ok := list()[key]; !ok {
			t.Errorf("%s was deleted with another mark", key)
		}
		if err := l.rules.DeleteFlows(t.Context(), f.Mark); err != nil {
			t.Fatal(err)
		}
		if _, ok := list()[key]; ok {
			t.Errorf("%s was not deleted", key)
		}
	}
}
