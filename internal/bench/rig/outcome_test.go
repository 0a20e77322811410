package rig

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseOutcome(t *testing.T) {
	got, err := parseOutcome("done=63714 failed=2 bytes=4637504 seconds=2.5 busy=3.98 mean=1983.9 p50=1791.9 p95=3299.4 p99=5300.1 max=23981.9 server_A=63000 server_B=714\n")
	if err != nil {
		t.Fatal(err)
	}
	want := &Outcome{
		Done: 63714, Failed: 2, Bytes: 4637504,
		Elapsed: 2500 * time.Millisecond, Busy: 3980 * time.Millisecond,
		P50: 1791900 * time.Nanosecond, P95: 3299400 * time.Nanosecond,
		Servers: map[string]uint64{"A": 63000, "B": 714},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got.Rate() != 63714/2.5 {
		t.Errorf("rate: want %g, got %g", 63714/2.5, got.Rate())
	}
	if got.BitRate() != 8*4637504/2.5 {
		t.Errorf("bit rate: want %g, got %g", 8*4637504/2.5, got.BitRate())
	}
	if want := 3980 * time.Millisecond / 63714; got.CPU() != want {
		t.Errorf("processor time of a request: want %v, got %v", want, got.CPU())
	}
	if got := new(Outcome).CPU(); got != 0 {
		t.Errorf("processor time of no request: want 0, got %v", got)
	}
}

func TestOutcomeAdd(t *testing.T) {
	var sum Outcome
	sum.Add(&Outcome{
		Done: 10, Failed: 1, Bytes: 100, Elapsed: time.Second, Busy: 2 * time.Second,
		P50: 4 * time.Millisecond, P95: 8 * time.Millisecond, Servers: map[string]uint64{"A": 4, "B": 6},
	})
	sum.Add(&Outcome{
		Done: 30, Bytes: 50, Elapsed: time.Second, Busy: time.Second,
		P50: 8 * time.Millisecond, P95: 20 * time.Millisecond, Servers: map[string]uint64{"B": 10, "C": 20},
	})
	want := Outcome{
		Done: 40, Failed: 1, Bytes: 150, Elapsed: 2 * time.Second, Busy: 3 * time.Second,
		P50: 7 * time.Millisecond, P95: 17 * time.Millisecond, Servers: map[string]uint64{"A": 4, "B": 16, "C": 20},
	}
	if diff := cmp.Diff(want, sum); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	var bulk Outcome
	bulk.Add(&Outcome{Bytes: 1, Elapsed: time.Second})
	if bulk.P50 != 0 {
		t.Errorf("no requests: want no quantile, got %v", bulk.P50)
	}
}

func TestParseOutcomeHostile(t *testing.T) {
	const good = "failed=0 bytes=1 seconds=1 busy=1"
	if _, err := parseOutcome(good); err != nil {
		t.Errorf("%q: want no error, got %v", good, err)
	}
	for _, line := range []string{
		"",
		"failed=0 bytes=1 seconds=1",
		"failed=0 bytes=1 seconds=0 busy=1",
		good + " failed=0",
		good + " done",
		good + " done=",
		good + " done=-1",
		good + " done=NaN",
		good + " done=+Inf",
		good + " done=1e300",
		good + " p50=x",
	} {
		if o, err := parseOutcome(line); err == nil {
			t.Errorf("%q: want an error, got %+v", line, o)
		}
	}
}
