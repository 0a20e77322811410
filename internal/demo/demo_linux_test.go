package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSummary(t *testing.T) {
	pass := result{true, "this holds", "1 of 1"}
	fail := result{false, "that holds", "0 of 1"}
	for _, tt := range []struct {
		name    string
		results []result
		broken  error
		want    string
		ok      bool
	}{
		{"all pass", []result{pass, pass}, nil, "\nPASS  this holds: 1 of 1\nPASS  this holds: 1 of 1\ndemo: 2 of 2 passed\n", true},
		{"one fails", []result{pass, fail}, nil, "\nPASS  this holds: 1 of 1\nFAIL  that holds: 0 of 1\ndemo: 1 of 2 passed\n", false},
		{"broken off", []result{pass}, errors.New("no lbd"), "\nPASS  this holds: 1 of 1\nFAIL  the demo came to its end: no lbd\ndemo: 1 of 2 passed\n", false},
		{"nothing checked", nil, nil, "\ndemo: 0 of 0 passed\n", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b bytes.Buffer
			s := summary{results: tt.results, broken: tt.broken}
			if got := s.print(&b); got != tt.ok {
				t.Errorf("want %v, got %v", tt.ok, got)
			}
			if diff := cmp.Diff(tt.want, b.String()); diff != "" {
				t.Errorf("summary (-want +got)\n%s", diff)
			}
		})
	}
}

func TestShares(t *testing.T) {
	for _, tt := range []struct {
		active [3]int
		want   [3]float64
		ok     bool
	}{
		{[3]int{120, 80, 40}, [3]float64{3, 2, 1}, true},
		{[3]int{116, 84, 40}, [3]float64{2.9, 2.1, 1}, true},
		{[3]int{80, 80, 80}, [3]float64{2, 2, 2}, false},
		{[3]int{120, 120, 0}, [3]float64{3, 3, 0}, false},
		{[3]int{0, 0, 0}, [3]float64{}, false},
	} {
		got, ok := shares(tt.active)
		if diff := cmp.Diff(tt.want, got); diff != "" || ok != tt.ok {
			t.Errorf("shares(%v): want %v, got %v (-want +got)\n%s", tt.active, tt.ok, ok, diff)
		}
	}
}

func testFrame(at time.Duration) frame {
	return frame{At: at, Good: 7, Failed: 1, Download: -1, LBD: true, Rows: []row{
		{Name: "s1", Address: "10.0.0.2:80", Weight: 3, Active: 4, Inactive: 9, Answers: 7},
		{Name: "s2", Weight: -1},
	}}
}

func TestViewPlain(t *testing.T) {
	var b bytes.Buffer
	v := &view{out: &b}
	v.say("== begin")
	v.show(testFrame(1 * time.Second))
	v.show(testFrame(1500 * time.Millisecond))
	f := testFrame(2 * time.Second)
	f.Download, f.LBD = 50, false
	v.show(f)
	want := `== begin
     1s | s1 weight 3 active  4 | s2 weight - active  0 | answers 7 failed 1
     2s | s1 weight 3 active  4 | s2 weight - active  0 | answers 7 failed 1, download 50%, lbd is dead
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("plain output (-want +got)\n%s", diff)
	}
}

// TestViewLive plays the output on a small terminal: what is said must stay, and
// the frame must be there once, below.
func TestViewLive(t *testing.T) {
	var b bytes.Buffer
	v := &view{out: &b, live: true}
	v.say("== begin")
	v.show(testFrame(1 * time.Second))
	v.show(testFrame(2 * time.Second))
	v.say("== next")
	v.show(testFrame(3 * time.Second))
	v.close()
	v.say("== end")
	want := `== begin
== next

       REAL SERVER    WEIGHT  ACTIVE  INACTIVE  ANSWERS
  s1   10.0.0.2:80         3       4         9        7  ####
  s2                       -       0         0        0  
     3s  answers 7, failed 1
== end
`
	if diff := cmp.Diff(want, screen(t, b.String())); diff != "" {
		t.Errorf("screen (-want +got)\n%s", diff)
	}
}

// screen obeys the two escape sequences that the view uses.
func screen(t *testing.T, s string) string {
	t.Helper()
	lines := []string{""}
	for s != "" {
		if rest, ok := strings.CutPrefix(s, "\x1b["); ok {
			up, after, ok := strings.Cut(rest, "A\x1b[J")
			n := 0
			for _, c := range up {
				n = n*10 + int(c-'0')
			}
			if !ok || n >= len(lines) {
				t.Fatalf("unknown or bad escape sequence in %q", s)
			}
			lines = append(lines[:len(lines)-1-n], "")
			s = after
			continue
		}
		if s[0] == '\n' {
			lines = append(lines, "")
		} else {
			lines[len(lines)-1] += s[:1]
		}
		s = s[1:]
	}
	return strings.Join(lines, "\n")
}

// TestRunWithoutLBD sees that a demo that cannot run says so and fails.
func TestRunWithoutLBD(t *testing.T) {
	var out, errOut bytes.Buffer
	if got := run([]string{"-bin", t.TempDir()}, &out, &errOut); got != 1 {
		t.Errorf("exit status: want 1, got %d", got)
	}
	if !strings.Contains(out.String(), "FAIL  the demo came to its end: ") {
		t.Errorf("output does not say why:\n%s%s", &out, &errOut)
	}
	if got := run([]string{"-x"}, &out, &errOut); got != 2 {
		t.Errorf("exit status of wrong usage: want 2, got %d", got)
	}
}
