package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestTableInParts sees that what is printed later keeps the columns, and widens
// them where it must.
func TestTableInParts(t *testing.T) {
	var b strings.Builder
	tab := table{right: map[int]bool{1: true}}
	for _, part := range [][][]string{
		{{"NAME", "N", "WHAT"}, {"longest", "1", "a"}},
		{{"x", "22", "b"}},
		{{"longer than that", "333", "c"}, {"y", "4", "d"}},
		nil,
	} {
		for _, row := range part {
			tab.row(row...)
		}
		tab.write(&b)
	}
	want := "NAME     N  WHAT\n" +
		"longest  1  a\n" +
		"x        22  b\n" +
		"longer than that  333  c\n" +
		"y                   4  d\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
