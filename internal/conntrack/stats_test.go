package conntrack

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestStats(t *testing.T) {
	var st Stats
	msg := func(typ uint16, first, last uint16) *message {
		b := request(typ, 0, 1, 0, 0)
		for a := first; a <= last; a++ {
			b = appendAttr32(b, a, uint32(a)*10)
		}
		m, _, err := nextMessage(finish(b))
		if err != nil {
			t.Fatal(err)
		}
		return &m
	}
	for range 2 { // Two processors.
		if err := st.addCPU(msg(msgGetStatsCPU, 1, 16)); err != nil {
			t.Fatal(err)
		}
	}
	if err := st.setGlobal(msg(msgGetStats, 1, 3)); err != nil {
		t.Fatal(err)
	}
	want := Stats{
		Entries: 10, Max: 20, Found: 40, Invalid: 80, InsertFailed: 180, Drop: 200, EarlyDrop: 220,
		Error: 240, SearchRestart: 260, ClashResolve: 280, ChainTooLong: 300,
	}
	if diff := cmp.Diff(want, st); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if err := st.setGlobal(msg(msgGetStatsCPU, 1, 2)); !errors.Is(err, errMalformed) {
		t.Errorf("want %v, got %v", errMalformed, err)
	}
	if err := st.addCPU(msg(msgGetStats, 1, 2)); !errors.Is(err, errMalformed) {
		t.Errorf("want %v, got %v", errMalformed, err)
	}
	short, _, _ := nextMessage(finish(appendAttr(request(msgGetStats, 0, 1, 0, 0), attrGlobalEntries, 1)))
	if err := st.setGlobal(&short); !errors.Is(err, errMalformed) {
		t.Errorf("want %v, got %v", errMalformed, err)
	}
}
