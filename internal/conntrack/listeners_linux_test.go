package conntrack

import (
	"os/exec"
	"testing"
	"time"

	"github.com/lbd-project/lbd/internal/netnstest"
)

func TestNetnsListeners(t *testing.T) {
	l := newLab(t)
	want := func(want int) {
		t.Helper()
		deadline := time.Now().Add(patience)
		for {
			got, err := Listeners(l.lb.FD())
			if err != nil {
				t.Fatal(err)
			}
			if got == want {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("want %d listeners, got %d", want, got)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	want(0)
	l.events(EventConfig{})
	want(0) // Our own.
	cmd := exec.Command("conntrack", "-E")
	if err := l.lb.Start(cmd); err != nil {
		t.Fatal(err)
	}
	want(1)
	cmd.Process.Kill()
	cmd.Wait()
	want(0)
	if n, err := Listeners(netnstest.New(t).FD()); n != 0 || err != nil {
		t.Errorf("another namespace: want 0, got %d, %v", n, err)
	}
}
