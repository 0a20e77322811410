package daemon

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/internal/api"
	"github.com/lbd-project/lbd/ipvs"
)

// happened returns the events after a number, a line each, and the last number.
func (p *process) happened(since uint64) ([]string, uint64) {
	events, _ := p.Events(since)
	var lines []string
	for _, e := range events {
		since = e.Seq
		line := e.Kind
		if e.State != "" {
			line += " " + e.State
		}
		if (e.Service == "") != (e.Key == "") {
			p.r.t.Errorf("want a key with the service and none without, got %+v", e)
		}
		for _, text := range []string{e.Service, e.RealServer, e.Text, e.Reason, e.By} {
			if text != "" {
				line += " | " + text
			}
		}
		lines = append(lines, line)
	}
	return lines, since
}

// wantEvents compares what happened since the last time.
func (p *process) wantEvents(since *uint64, want ...string) {
	p.r.t.Helper()
	got, last := p.happened(*since)
	*since = last
	if diff := cmp.Diff(want, got); diff != "" {
		p.r.t.Errorf("events (-want +got):\n%s", diff)
	}
}

// Everything that an operator should hear of is an event, with its reason, and
// nothing else is.
func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		path := writeFile(t, goodFile)
		p := r.startFile(path)
		after(decided)
		got, seq := p.happened(0)
		if len(got) != 1 || !strings.HasPrefix(got[0], "start | lbd ") {
			t.Errorf("a start: want one event, got %q", got)
		}
		p.say("web/"+rs2, drain)
		p.wantEvents(&seq,
			"admin | web | 10.0.0.2:80 | drained | uid 4711",
			"real_server drained | web | 10.0.0.2:80 | drained, weight 0 | drained by uid 4711; no check")
		p.say("web/"+rs2, drain)
		p.wantEvents(&seq)
		p.say("web/"+rs3, disable)
		p.wantEvents(&seq,
			"admin | web | 10.0.0.3:80 | disabled | uid 4711",
			"real_server disabled | web | 10.0.0.3:80 | disabled, weight 0 | disabled by uid 4711; no check",
			"service unusable | web | no usable real server")

		rewrite(t, path, strings.Replace(goodFile, "10.0.0.2:80, weight: 3", "10.0.0.4:80, weight: 1", 1))
		if result, err := p.Reload(t.Context()); err != nil || !result.Reloaded {
			t.Fatalf("reload: %+v, %v", result, err)
		}
		synctest.Wait()
		l, err := load(path)
		if err != nil {
			t.Fatal(err)
		}
		p.wantEvents(&seq,
			"admin | web | 10.0.0.2:80 | drain forgotten | it left the configuration | configuration",
			fmt.Sprintf("reload loaded | configuration loaded | %s, sha256 %.12s", path, l.sha256),
			"real_server unchecked | web | 10.0.0.4:80 | unchecked, weight 1 | no check",
			"real_server draining | web | 10.0.0.2:80 | draining, weight 0 | drained: left the configuration",
			"service usable | web | a usable real server again")
		after(decided)
		p.wantEvents(&seq, "real_server gone | web | 10.0.0.2:80 | gone | left the configuration")
		rewrite(t, path, "nonsense: 1\n")
		if result, err := p.Reload(t.Context()); err != nil || result.Reloaded {
			t.Fatalf("reload: %+v, %v", result, err)
		}
		if got, last := p.happened(seq); len(got) != 1 || !strings.HasPrefix(got[0], "reload refused | reload refused, the running configuration stays | "+path+":1:1: ") {
			t.Errorf("a refused reload: got %q", got)
		} else {
			seq = last
		}
		if err := r.table.Do(ipvs.Op{
			Kind: ipvs.OpUpdateDestination, Service: ipvs.Service{ServiceKey: key(vip)}, Destination: server(rs4, 9).Destination,
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, last := p.happened(seq); len(got) != 1 || !strings.HasPrefix(got[0], "drift | repaired what somebody else changed | ") {
			t.Errorf("drift: got %q", got)
		} else {
			seq = last
		}
		r.admin.fail(errors.New("disk full"))
		p.say("web/"+rs4, drain)
		r.admin.fail(nil)
		after(decided)
		p.wantEvents(&seq,
			"admin | web | 10.0.0.4:80 | drained | uid 4711",
			"admin | what operators say is not written down, trying again | disk full",
			"real_server drained | web | 10.0.0.4:80 | drained, weight 0 | drained by uid 4711; no check",
			"service unusable | web | no usable real server",
			"admin | what operators say is written down again")
	})
}

// The ring keeps the last events; whoever is too slow sees by the numbers what is
// missing, and nobody waits.
func TestEventRing(t *testing.T) {
	r := newEventRing(func(api.Event) {})
	if events, _ := r.after(0); len(events) != 0 {
		t.Errorf("want none, got %v", events)
	}
	_, more := r.after(0)
	const n = 2*maxEvents + 7
	for i := range n {
		r.add(api.Event{Text: fmt.Sprint(i + 1)})
	}
	select {
	case <-more:
	default:
		t.Error("nobody was told that there are more")
	}
	// Who goes on after the last event of an earlier lbd misses none of this one.
	const first = n - maxEvents + 1
	for since, want := range map[uint64]uint64{0: first, n - maxEvents: first, n - 3: n - 2, n: 0, n + 1: first, 1<<64 - 1: first} {
		events, _ := r.after(since)
		if want == 0 {
			if len(events) != 0 {
				t.Errorf("after %d: want none, got %d", since, len(events))
			}
			continue
		}
		if len(events) == 0 || events[0].Seq != want || uint64(len(events)) != n-want+1 {
			t.Errorf("after %d: want %d from %d, got %d from %d", since, n-want+1, want, len(events), events[0].Seq)
			continue
		}
		for i, e := range events {
			if e.Seq != want+uint64(i) || e.Text != fmt.Sprint(e.Seq) {
				t.Fatalf("after %d: event %d is %+v", since, want+uint64(i), e)
			}
		}
	}
	r.add(api.Event{Text: strings.Repeat("é", maxEventText)})
	if events, _ := r.after(n); len(events) != 1 || len(events[0].Text) > maxEventText+len("…") {
		t.Error("a long text is kept whole")
	}
}
