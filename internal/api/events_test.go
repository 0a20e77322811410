package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestClientEvents(t *testing.T) {
	backend := fixture()
	c := NewClient(serve(t, backend, Options{}, defaultLimits), 20*time.Second)
	for since, want := range map[uint64][]Event{0: backend.events, 41: backend.events[1:], 43: nil} {
		var got []Event
		if err := c.Events(t.Context(), EventQuery{Since: since}, func(e Event) bool {
			got = append(got, e)
			return true
		}); err != nil {
			t.Errorf("since %d: %v", since, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("since %d (-want +got):\n%s", since, diff)
		}
	}
}

// follow reads events in the background, until its reader leaves or lbd ends.
func follow(t *testing.T, c *Client, q EventQuery) (seen <-chan uint64, leave func(), ended <-chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	events, done := make(chan uint64, 100), make(chan error, 1)
	go func() {
		done <- c.Events(ctx, q, func(e Event) bool {
			events <- e.Seq
			return true
		})
	}()
	return events, cancel, done
}

func wantSeq(t *testing.T, seen <-chan uint64, want uint64) {
	t.Helper()
	select {
	case got := <-seen:
		if got != want {
			t.Fatalf("want event %d, got %d", want, got)
		}
	case <-time.After(20 * time.Second):
		t.Fatalf("no event %d", want)
	}
}

// What happens is told at once, also after a silence that is longer than any time
// limit of a request and than the client's patience.
func TestEventsFollow(t *testing.T) {
	lim := testLimits()
	const pause = 4 * time.Second
	lim.header, lim.read, lim.write, lim.handle, lim.stream = pause/4, pause/4, pause/4, pause/4, pause/4
	lim.heartbeat = pause / 20
	backend := fixture()
	c := NewClient(serve(t, backend, Options{}, lim), pause/2)
	seen, leave, ended := follow(t, c, EventQuery{Follow: true})
	wantSeq(t, seen, 41)
	wantSeq(t, seen, 43)
	time.Sleep(pause)
	for seq := uint64(44); seq < 46; seq++ {
		backend.happen(Event{Seq: seq, Kind: EventAdmin})
		wantSeq(t, seen, seq)
	}
	leave()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("want the reader's own end, got %v", err)
	}
}

// A reader that reads nothing is cut off, and those who tell never wait for it.
func TestEventsSlowReader(t *testing.T) {
	lim := testLimits()
	lim.followers, lim.stall, lim.ahead, lim.heartbeat = 1, time.Second, 2*chunk, 20*time.Millisecond
	backend := fixture()
	socket := serve(t, backend, Options{}, lim)
	slow := dial(t, socket)
	if _, err := io.WriteString(slow, "GET /v1/events?follow=true HTTP/1.1\r\nHost: l\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(slow)
	if line, err := r.ReadString('\n'); err != nil || !strings.Contains(line, "200") {
		t.Fatalf("want an answer, got %q, %v", line, err)
	}
	text := strings.Repeat("x", 10_000)
	begun := time.Now()
	for seq := uint64(44); seq < 1000; seq++ {
		backend.happen(Event{Seq: seq, Text: text})
	}
	if d := time.Since(begun); d > 10*time.Second {
		t.Errorf("telling took %v", d)
	}
	// Its place is free once it was cut off.
	for deadline := time.Now().Add(20 * time.Second); ; {
		err := NewClient(socket, 20*time.Second).Events(t.Context(), EventQuery{Since: 999}, func(Event) bool { return true })
		if err == nil {
			break
		}
		if !errors.Is(err, ErrUnavailable) || time.Now().After(deadline) {
			t.Fatalf("the slow reader was not cut off: %v", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if b, err := io.ReadAll(r); strings.HasSuffix(string(b), "\r\n0\r\n\r\n") {
		t.Errorf("the answer of the slow reader ended well: %v", err)
	}
}

// A stop does not wait for readers of events, and they learn of it.
func TestEventsStopped(t *testing.T) {
	socket := t.TempDir() + "/lbd.sock"
	l, err := Listen(socket, -1)
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(fixture(), Options{})
	s.limits.grace = 20 * time.Second
	stop := run(t, s, l)
	seen, _, ended := follow(t, NewClient(socket, 20*time.Second), EventQuery{Follow: true, Since: 41})
	wantSeq(t, seen, 43)
	begun := time.Now()
	if err := stop(); err != nil {
		t.Error(err)
	}
	if d := time.Since(begun); d > 10*time.Second {
		t.Errorf("the stop took %v", d)
	}
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "lbd stopped") {
		t.Errorf("want an error about the stop, got %v", err)
	}
}

// A reader that goes gives its place back.
func TestEventsReaderGoes(t *testing.T) {
	lim := testLimits()
	lim.followers = 1
	c := NewClient(serve(t, fixture(), Options{}, lim), 20*time.Second)
	for i := range 3 {
		for deadline := time.Now().Add(20 * time.Second); ; {
			err := c.Events(t.Context(), EventQuery{Follow: true}, func(Event) bool { return false })
			if err == nil {
				break
			}
			var se *StatusError
			if !errors.As(err, &se) || se.Code != http.StatusServiceUnavailable || time.Now().After(deadline) {
				t.Fatal(fmt.Errorf("reader %d: %w", i, err))
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}
