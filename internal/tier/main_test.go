package main

import (
	"strings"
	"testing"
)

func TestTally(t *testing.T) {
	const in = `{"Action":"output","Package":"p","Test":"TestA","Output":"quiet\n"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestB","Output":"why it failed\n"}
{"Action":"fail","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Test":"TestC","Output":"why it was skipped\n"}
{"Action":"skip","Package":"p","Test":"TestC"}
not json
{"Action":"build-output","ImportPath":"q","Output":"q.go:1: broken\n"}
{"Action":"skip","Package":"empty"}
{"Action":"fail","Package":"p","Elapsed":1.6}
{"Action":"pass","Package":"r","Test":"TestD/slow","Elapsed":9}
{"Action":"pass","Package":"r","Elapsed":12.2}
`
	var out strings.Builder
	ta := newTally(&out)
	if err := ta.read(strings.NewReader(in)); err != nil {
		t.Fatal(err)
	}
	if ta.passed != 2 || ta.failed != 1 || ta.skipped != 1 {
		t.Errorf("counted %d passed, %d failed, %d skipped; want 2, 1, 1", ta.passed, ta.failed, ta.skipped)
	}
	const want = "why it failed\nwhy it was skipped\nnot json\nq.go:1: broken\nFAIL p\n"
	if out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
	if want, got := "r 12, p 2", ta.longest(2); want != got {
		t.Errorf("the longest are %q, want %q", got, want)
	}
}
