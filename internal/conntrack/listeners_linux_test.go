package conntrack

import (
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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
	e := l.events(EventConfig{})
	want(0) // Our own.
	// One that is closed is nobody's, even while a child has a copy of it that does
	// not execute its program yet.
	copied, err := unix.Dup(e.FD())
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(copied), "copy")
	child := exec.Command("conntrack", "-E")
	child.ExtraFiles = []*os.File{file}
	if err := errors.Join(l.client.Start(child), file.Close()); err != nil {
		t.Fatal(err)
	}
	defer child.Wait()
	defer child.Process.Kill()
	want(0)
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if got, err := Listeners(l.lb.FD()); got != 0 || err != nil {
		t.Errorf("a closed one: want 0, got %d, %v", got, err)
	}
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
