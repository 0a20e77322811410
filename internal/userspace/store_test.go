package userspace

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/lbd-project/lbd/internal/userspace/ruleset"
	"github.com/lbd-project/lbd/ipvs"
)

// TestStoreHostile changes what a store has into what no engine wrote.
func TestStoreHostile(t *testing.T) {
	g := newRig(t)
	p := tcpService("192.0.2.12:0")
	p.Flags, p.Persistence = ipvs.FlagPersistent, ipvs.Persistence{Timeout: time.Minute, Netmask: ipvs.NetmaskV4(netip.MustParseAddr("255.255.255.0"))}
	g.apply(addOp(web), add(web, one, 1), add(web, two, 1), addOp(web6), addOp(p), add(p, "10.0.0.1:0", 3))
	g.apply(remove(web, two))
	g.engine.hostSysctls[ctAcct] = savedSysctl{"0", "1"}
	if err := g.engine.save(g.engine.current()); err != nil {
		t.Fatal(err)
	}
	good := string(g.store.data)
	for _, test := range []struct{ name, old, new, want string }{
		{"unchanged", "", "", ""},
		{"empty text", good, "{}", "version 0"},
		{"no JSON", good, "\x00", "invalid character"},
		{"cut", "}]", "", "EOF"},
		{"text behind", good, good + "x", "after the end"},
		{"unknown field", `"version"`, `"x":1,"version"`, "unknown field"},
		{"version", `"version":1`, `"version":2`, "version 2"},
		{"mask", `"mark_mask":268435200`, `"mark_mask":255`, "mark_mask"},
		{"timeout below 0", `"tcp":900`, `"tcp":-5`, "timeout"},
		{"timeout too long", `"tcp":900`, `"tcp":9223372036854775807`, "timeout"},
		{"setting", "expire_nodest_conn", "nosuch", "nosuch"},
		{"setting's value", `_mode":1`, `_mode":-1`, "conn_reuse_mode"},
		{"host setting", ctAcct, "kernel/modprobe", "kernel/modprobe"},
		{"host setting's value", `"before":"0"`, `"before":"/bin/sh"`, "invalid syntax"},
		{"server number 0", `"id":1,"address":"10.0.0.1:80"`, `"id":0,"address":"10.0.0.1:80"`, "number 0"},
		{"server number too high", `"id":1,"address":"10.0.0.1:80"`, `"id":4294967295,"address":"10.0.0.1:80"`, "number 4294967295"},
		{"server number twice", `"id":1,"address":"10.0.0.1:80"`, `"id":2,"address":"10.0.0.1:80"`, "number 2"},
		{"service number twice", `"id":2,"scheduler"`, `"id":1,"scheduler"`, "number 1"},
		{"service number of the dead", `"service_id":1`, `"service_id":9`, "not 9"},
		{"service twice", "192.0.2.12:0", "192.0.2.10:80", "service exists"},
		{"scheduler", `"wlc"`, `"nosuch"`, "scheduler"},
		{"scheduler's length", `"wlc"`, `"` + strings.Repeat("x", 20) + `"`, "longer"},
		{"family", `"family":"ipv4"`, `"family":"ipv5"`, "ipv5"},
		{"family of another address", `"family":"ipv4"`, `"family":"ipv6"`, "is not ipv6"},
		{"address", `192.0.2.10:80`, `0.0.0.0:80`, "0.0.0.0"},
		{"protocol", `"protocol":"TCP"`, `"protocol":"XXX"`, "XXX"},
		{"port 0 without persistence", "192.0.2.10:80", "192.0.2.10:0", "port 0"},
		{"netmask", "255.255.255.0", "ff::", "not IPv4"},
		{"real server", "10.0.0.1:80", "224.0.0.1:80", "224.0.0.1"},
		{"dead real server that is alive", "10.0.0.2:80", "10.0.0.1:80", "real server exists"},
		{"weight", `"weight":3`, `"weight":-3`, "cannot unmarshal"},
		{"forwarding method", `"forward":"Masq"`, `"forward":"x"`, "forwarding method"},
	} {
		t.Run(test.name, func(t *testing.T) {
			changed := strings.Replace(good, test.old, test.new, 1)
			if test.old != "" && changed == good {
				t.Fatalf("nothing to change in\n%s", good)
			}
			e := newRig(t).engine
			s, err := decodeStore([]byte(changed))
			if err == nil {
				err = e.load(s)
			}
			switch {
			case test.want == "" && err != nil:
				t.Errorf("want no error, got %v", err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("want an error with %q, got %v", test.want, err)
			}
		})
	}
}

// TestStoreUseless opens an engine whose store makes no sense: it has an empty
// table, says why, and uses no mark that conntrack still has.
func TestStoreUseless(t *testing.T) {
	g := newRig(t)
	g.apply(addOp(web), add(web, one, 1))
	g.connect(tupleTo(web, "198.51.100.1:1000"), 1)
	g.rules.flows = []ruleset.Flow{{Tuple: tupleTo(web, "198.51.100.1:1001"), Mark: 2 << 8}}
	g.rules.templates = []ruleset.Template{{Service: 1, Mark: 3 << 8}}
	g.store.data = g.store.data[:len(g.store.data)-2]
	g.log.Reset()
	g.start()
	if table, err := g.engine.Table(t.Context()); table != nil || err != nil {
		t.Errorf("table: %+v, %v", table, err)
	}
	if !strings.Contains(g.log.String(), "level=ERROR") {
		t.Errorf("log: %q", g.log)
	}
	g.apply(addOp(web), add(web, two, 1))
	g.counts(web.ServiceKey, map[string]string{two: "0/0/0"})
	if id := g.engine.model.services[web.ServiceKey].servers[0].id; id != 4 {
		t.Errorf("number of the new real server: want 4, since there are flows of 1 and 2, and a template of 3; got %d", id)
	}
}

// FuzzStore loads any bytes. What loads is written as it was read.
func FuzzStore(f *testing.F) {
	g := newRig(f)
	g.apply(addOp(web), add(web, one, 1), add(web, two, 1), addOp(web6))
	g.apply(remove(web, two))
	f.Add(g.store.data)
	f.Fuzz(func(t *testing.T, b []byte) {
		load := func(b []byte) *Engine {
			s, err := decodeStore(b)
			if err != nil {
				return nil
			}
			e, err := newEngine(Options{Store: &fakeStore{}}, rand.NewPCG(1, 1))
			if err != nil {
				t.Fatal(err)
			}
			if e.load(s) != nil {
				return nil
			}
			return e
		}
		e := load(b)
		if e == nil {
			return
		}
		write := func(e *Engine) string {
			if err := e.save(e.current()); err != nil {
				t.Fatal(err)
			}
			return string(e.opt.Store.(*fakeStore).data)
		}
		first := write(e)
		again := load([]byte(first))
		if again == nil {
			t.Fatalf("what was written does not load: %s", first)
		}
		if second := write(again); second != first {
			t.Fatalf("written again:\n%s\nwant\n%s", second, first)
		}
	})
}

// TestStoreFull has a store that cannot be written: a failed real server loses its
// weight all the same, or its place, and one that has no number gets none, which
// the next engine would not know of.
func TestStoreFull(t *testing.T) {
	g := newRig(t)
	g.apply(addOp(web), add(web, one, 1), add(web, two, 1), add(web, three, 1))
	g.store.fail = errTest
	g.start()
	if got := g.connect(tupleTo(web, "198.51.100.1:1000"), 1); got == "" {
		t.Error("the next engine refuses a client")
	}
	g.apply(update(web, one, 0), remove(web, three))
	for i := range 4 {
		if got := g.connect(tupleTo(web, fmt.Sprintf("198.51.100.2:%d", 1000+i)), 1); got != two {
			t.Errorf("a connection went to %q, want %s", got, two)
		}
	}
	for name, ops := range map[string][]ipvs.Op{
		"real server": {add(web, "10.0.0.9:80", 1)},
		"service":     {addOp(web6)},
	} {
		if err := g.engine.Apply(t.Context(), ops); !errors.Is(err, errTest) {
			t.Errorf("a new %s: want %v, got %v", name, errTest, err)
		}
	}
	g.apply(add(web, three, 5)) // its number is known still
	if err := g.engine.maintain(t.Context()); err != nil {
		t.Error(err)
	}
	if n := strings.Count(g.log.String(), "is not kept, trying again"); n != 1 {
		t.Errorf("want the log to tell once, got %d in\n%s", n, g.log)
	}
	g.store.fail = nil
	if err := g.engine.maintain(t.Context()); err != nil {
		t.Error(err)
	}
	if s := string(g.store.data); !strings.Contains(s, `"weight":0`) || !strings.Contains(s, `"weight":5`) || !strings.Contains(g.log.String(), "is kept again") {
		t.Errorf("the store has %s, the log\n%s", g.store.data, g.log)
	}
	g.apply(add(web, "10.0.0.9:80", 1), addOp(web6))
}
