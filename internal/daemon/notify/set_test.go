package notify

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/internal/api"
	"github.com/lbd-project/lbd/internal/config"
)

// Each hook is told of what it wants, in order, one thing at a time, and one that
// hangs holds up neither the others nor those who tell.
func TestTell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "quick", "slow", "some")
		list := specs("quick", "slow", "some")
		list[2].Events = []string{api.EventService, api.EventSync}
		r.set.Change(list)
		r.end("slow").set(time.Hour, nil, false)
		begun := time.Now()
		r.tell("a", "service/b", "c")
		if took := time.Since(begun); took != 0 {
			t.Errorf("telling took %v", took)
		}
		r.want("quick", "a", "b", "c")
		r.want("some", "b")
		r.want("slow")
		if diff := cmp.Diff([]string(nil), Warnings(r.set.Status())); diff != "" {
			t.Errorf("warnings at first (-want +got):\n%s", diff)
		}
		after(10 * time.Second)
		r.want("slow", "a: context deadline exceeded")
		after(9 * time.Second)
		r.want("slow")
		r.want("quick")
		got := r.set.Status()
		want := []api.Hook{
			{Name: "quick", Kind: "exec", Told: 3},
			{Name: "slow", Kind: "exec", Lost: 1, Waiting: 2, WaitingSeconds: 19, Failures: 1, LastError: "context deadline exceeded", LastErrorTime: begun.Add(10 * time.Second)},
			{Name: "some", Kind: "exec", Told: 1},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("status (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"notify: exec slow fails: context deadline exceeded; failures in a row: 1, events waiting: 2, lost: 1"}, Warnings(got)); diff != "" {
			t.Errorf("warnings (-want +got):\n%s", diff)
		}
	})
}

// A log that hangs holds up nobody who tells.
func TestLogHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "page")
		r.log.hold = make(chan struct{})
		h := r.set.hooks[0]
		free := func(what string) {
			t.Helper()
			synctest.Wait()
			if !h.mu.TryLock() {
				t.Fatalf("%s: telling has to wait for the log", what)
			}
			h.mu.Unlock()
		}
		defer close(r.log.hold)
		r.end("page").set(0, errBroken, false)
		r.tell("a")
		free("failed")
		r.log.hold <- struct{}{}
		free("lost")
		r.end("page").set(0, nil, false)
		r.log.hold <- struct{}{}
		r.tell("b")
		free("again")
		r.log.hold <- struct{}{}
		r.want("page", "a: broken", "(1 lost) b")
	})
}

// A hook is slow before it fails.
func TestSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := specs("slow")
		list[0].Timeout = time.Minute
		r := newRig(t)
		r.set.Change(list)
		r.end("slow").set(40*time.Second, nil, false)
		r.tell("a", "b")
		after(20 * time.Second)
		want := []string{"notify: exec slow is slow: events waiting: 2, the oldest for 20 s, lost: 0"}
		if diff := cmp.Diff(want, Warnings(r.set.Status())); diff != "" {
			t.Errorf("warnings (-want +got):\n%s", diff)
		}
		after(60 * time.Second)
		r.want("slow", "a", "b")
		if got := Warnings(r.set.Status()); got != nil {
			t.Errorf("want no warnings, got %q", got)
		}
		if got := r.end("slow").atOnce; got != 1 {
			t.Errorf("want one attempt at a time, got %d", got)
		}
	})
}

// A program is not run again for what it failed at, the next one hears how many
// were lost, and the log does not fill up.
func TestFailing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "page")
		r.end("page").set(time.Second, errBroken, false)
		r.tell("a", "b", "c")
		after(3 * time.Second)
		r.want("page", "a: broken", "(1 lost) b: broken", "(2 lost) c: broken")
		r.wantLog(
			`level=WARN msg="notification failed" hook=page failures=1 err=broken`,
			`level=WARN msg="notifications lost" hook=page lost=1 lost_in_all=1 waiting=2`)
		after(time.Minute)
		r.wantLog(`level=WARN msg="notifications lost" hook=page lost=2 lost_in_all=3 waiting=0`)
		r.tell("d")
		after(time.Second)
		r.wantLog(`level=WARN msg="notification failed" hook=page failures=4 err=broken`)
		r.want("page", "(3 lost) d: broken")
		r.end("page").set(0, nil, false)
		r.tell("e", "f")
		r.want("page", "(4 lost) e", "f")
		r.wantLog(`level=INFO msg="notifications arrive again" hook=page failures=4`)
		after(time.Minute)
		r.wantLog(`level=WARN msg="notifications lost" hook=page lost=1 lost_in_all=4 waiting=0`)
		want := []api.Hook{{Name: "page", Kind: "exec", Told: 2, Lost: 4, LastError: "broken", LastErrorTime: time.Now().Add(-time.Minute)}}
		if diff := cmp.Diff(want, r.set.Status()); diff != "" {
			t.Errorf("status (-want +got):\n%s", diff)
		}
	})
}

// What can be tried again is, with longer and longer pauses, until it is too old;
// what comes meanwhile comes after it.
func TestAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.end("web").most = 3
		r.set.Change(specs("web"))
		r.end("web").set(0, errBroken, true)
		r.tell("a", "b")
		r.want("web", "a b: broken")
		after(time.Second)
		r.want("web", "a b: broken")
		r.tell("c", "d")
		after(2 * time.Second)
		r.want("web", "a b c: broken")
		r.end("web").set(0, nil, false)
		after(4 * time.Second)
		r.want("web", "a b c", "d")

		r.end("web").set(0, errBroken, true)
		r.tell("e")
		after(4 * time.Minute)
		tries := len(r.end("web").got)
		if tries < 8 || tries > 11 {
			t.Errorf("want 8 to 11 attempts in 4 minutes, got %d", tries)
		}
		r.tell("f")
		after(2 * time.Minute)
		r.end("web").set(0, nil, false)
		after(time.Minute)
		f := r.end("web")
		if last := f.got[len(f.got)-1]; last != "(1 lost) f" {
			t.Errorf("want f after e was lost, got %q", last)
		}
		f.got = nil
		if got := r.set.Status()[0]; got.Told != 5 || got.Lost != 1 || got.Waiting != 0 {
			t.Errorf("want 5 told and 1 lost, got %+v", got)
		}
	})
}

// The queue is bounded: the oldest go first. Nothing is told that is too old.
func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "page")
		r.end("page").set(11*time.Second, nil, false)
		r.tell("first")
		synctest.Wait()
		for i := range maxQueue + 5 {
			r.tell(fmt.Sprint(i))
		}
		if got := r.set.Status()[0]; got.Waiting != maxQueue+1 || got.Lost != 5 {
			t.Errorf("want %d waiting and 5 lost, got %+v", maxQueue+1, got)
		}
		after(10 * time.Second)
		r.want("page", "first: context deadline exceeded")
		r.end("page").set(9*time.Second, nil, false)
		after(9 * time.Second)
		r.want("page")
		after(time.Second)
		r.want("page", "(6 lost) 5: context deadline exceeded")
		after(9 * time.Second)
		r.want("page", "(7 lost) 6")
		after(10 * time.Minute)
		if got := r.set.Status()[0]; got.Waiting != 0 || got.Told+got.Lost != maxQueue+6 {
			t.Errorf("want all told or lost, got %+v", got)
		}
		f := r.end("page")
		if n := len(f.got); n < 28 || n > 32 { // 5 minutes of 9 s each
			t.Errorf("want some 30 attempts, got %d: %q", n, f.got[:1])
		}
		f.got = nil
		r.tell("new")
		after(9 * time.Second)
		if got := f.got; len(got) != 1 || !strings.HasPrefix(got[0], "(40") || !strings.HasSuffix(got[0], " lost) new") {
			t.Errorf("want new after some 4000 lost, got %q", got)
		}
	})
}

// A reload leaves alone what is equal, hands over what a hook has not told to the
// next one of its name, and ends those that left.
func TestChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "same", "other", "left")
		for _, name := range []string{"same", "other", "left"} {
			r.end(name).set(time.Second, nil, false)
		}
		r.end("left").set(1500*time.Millisecond, nil, false)
		r.tell("a", "b", "service/c", "d", "e")
		synctest.Wait()
		next := specs("other", "new", "same")
		next[0].Events = []string{api.EventServer}
		r.set.Change(next)
		r.tell("f")
		after(1500 * time.Millisecond)
		r.want("left", "a")
		r.want("other", "a")
		r.want("same", "a")
		r.want("new", "f")
		after(10 * time.Second)
		r.want("left", "b: context canceled") // 2 s are over
		r.want("other", "b", "d", "e", "f")
		r.want("same", "b", "c", "d", "e", "f")
		r.wantLog(
			`level=WARN msg="notification failed" hook=left failures=1 err="context canceled"`,
			`level=WARN msg="notifications lost" hook=left lost=4 lost_in_all=4 waiting=0`)
		var got []string
		for _, h := range r.set.Status() {
			got = append(got, fmt.Sprintf("%s %d %d", h.Name, h.Told, h.Lost))
		}
		if diff := cmp.Diff([]string{"other 5 0", "new 1 0", "same 6 0"}, got); diff != "" {
			t.Errorf("status (-want +got):\n%s", diff)
		}
		for name, f := range r.ends {
			if f.atOnce != 1 {
				t.Errorf("%s: want one attempt at a time, got %d", name, f.atOnce)
			}
		}
	})
}

// A hook that changes again and again, before it has come to anything, loses
// nothing.
func TestChangeOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "page")
		r.end("page").set(time.Second, errBroken, true)
		var want []string
		for i := range 20 {
			r.tell(fmt.Sprint(i))
			want = append(want, fmt.Sprint(i))
			list := specs("page")
			list[0].MaxAge += time.Duration(i) * time.Second
			r.set.Change(list)
			after(100 * time.Millisecond)
		}
		r.end("page").set(0, nil, false)
		after(time.Minute)
		f := r.end("page")
		f.got = slices.DeleteFunc(f.got, func(line string) bool { return strings.HasSuffix(line, ": broken") })
		r.want("page", want...)
		if got := r.set.Status()[0]; got.Told != 20 || got.Lost != 0 {
			t.Errorf("want 20 told, got %+v", got)
		}
	})
}

// The end waits for the last event, then for what can be told in 2 seconds.
func TestEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "quick", "hangs", "retries", "idle")
		r.end("quick").set(300*time.Millisecond, nil, false)
		r.end("hangs").set(time.Hour, nil, false)
		r.end("retries").set(0, errBroken, true)
		r.tell("a", "b")
		after(time.Second)
		r.stop()
		after(time.Second)
		r.tell("last")
		if took := r.shut(); took != 2*time.Second {
			t.Errorf("want an end after 2 s, got %v", took)
		}
		r.want("quick", "a", "b", "last")
		r.want("hangs", "a: context canceled")
		f := r.end("retries")
		if got := strings.Join(f.got, ", "); !strings.HasSuffix(got, "last: broken") || len(f.got) > 10 {
			t.Errorf("want each tried once more at the end, got %s", got)
		}
		r.wantEnd("hangs", 3)
		r.wantEnd("retries", 3)
	})
}

// wantEnd sees that the log tells of all that a hook has lost.
func (r *rig) wantEnd(name string, lost int) {
	r.t.Helper()
	want := fmt.Sprintf(`msg="notifications lost" hook=%s lost=%d`, name, lost)
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	if log := r.log.b.String(); !strings.Contains(log, want) {
		r.t.Errorf("want %s, got\n%s", want, log)
	}
}

// The end is as quick as it can be.
func TestEndIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "a", "b")
		r.tell("x")
		if took := r.shut(); took != 0 {
			t.Errorf("want an end at once, got %v", took)
		}
		r.want("a", "x")
	})
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		if took := r.shut(); took != 0 {
			t.Errorf("without hooks: want an end at once, got %v", took)
		}
	})
}

// The configuration knows all kinds of events, and no others.
func TestEventKinds(t *testing.T) {
	for _, kind := range api.EventKinds {
		text := "notify: {exec: [{command: [/x], events: [" + kind + "]}]}\nvirtual_services: []\n"
		if _, err := config.Parse("x", []byte(text)); err != nil {
			t.Error(err)
		}
	}
	_, err := config.Parse("x", []byte("notify: {exec: [{command: [/x], events: [x]}]}\nvirtual_services: []\n"))
	if err == nil || strings.Count(err.Error(), ",") != len(api.EventKinds)-1 {
		t.Errorf("want %d kinds, got %v", len(api.EventKinds), err)
	}
}
