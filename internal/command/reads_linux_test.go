package command

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/lbd-project/lbd/internal/filetest"
)

// However many Commands there are of a program whose file does not come, such as
// those of a check whose interval reloads change, one thread waits for it.
func TestRunUnreadShared(t *testing.T) {
	program := t.TempDir() + "/program"
	if err := os.WriteFile(program, []byte("#!/bin/sh\nexit 7\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	end := filetest.Withhold(t, program)
	reads, before := NewReads(), filetest.Threads(t)
	const n = 40
	var last *Command
	for range n {
		c, err := New(Spec{Args: []string{program}, Reads: reads})
		if err != nil {
			t.Fatal(err)
		}
		err = filetest.Unread(t, ErrStart, func(ctx context.Context) error {
			_, err := c.Run(ctx)
			return err
		})
		if !errors.Is(err, ErrUnread) || !errors.Is(err, ErrStart) {
			t.Fatalf("want %v, got %v", ErrUnread, err)
		}
		last = c
	}
	if got := filetest.Threads(t); got > before+n/2 {
		t.Errorf("%d threads before, %d after %d commands", before, got, n)
	}
	end()
	select {
	case <-last.unread.Load().done:
	case <-time.After(20 * time.Second):
		t.Fatal("still read after its file has come")
	}
	if len(reads.under) > 0 {
		t.Errorf("want no read kept, got %v", reads.under)
	}
	if r, err := last.Run(within(t, 30*time.Second)); err != nil || r.Code != 7 {
		t.Errorf("afterwards: want status 7, got %+v, %v", r, err)
	}
	noChildren(t)
}

// Of programs with different files no more are read at once than may be, and the
// others in their turn.
func TestReadsPlaces(t *testing.T) {
	r := newReads(1)
	begun, release := make(chan string, 3), make(chan struct{})
	touch := func(path string) func() {
		return func() {
			begun <- path
			<-release
		}
	}
	first := r.join("/1", touch("/1"))
	if got := <-begun; got != "/1" {
		t.Errorf("want /1 read, got %s", got)
	}
	if again := r.join("/1", touch("again")); again != first {
		t.Error("want the read that is under way")
	}
	second := r.join("/2", touch("/2"))
	select {
	case got := <-begun:
		t.Errorf("want no other read beside the first, got %s", got)
	case <-time.After(20 * time.Millisecond):
	}
	close(release)
	for _, read := range []*read{first, second} {
		select {
		case <-read.done:
		case <-time.After(20 * time.Second):
			t.Fatal("does not end")
		}
	}
	if got := <-begun; got != "/2" {
		t.Errorf("want /2 read, got %s", got)
	}
}
