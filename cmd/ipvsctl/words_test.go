package main

import (
	"strings"
	"testing"
	"time"
)

func TestSpan(t *testing.T) {
	tests := []struct {
		seconds float64
		want    string
	}{
		{-3, "0.0s"}, {0, "0.0s"}, {0.04, "0.0s"}, {9.94, "9.9s"}, {9.95, "10s"}, {59.4, "59s"}, {59.5, "1m"},
		{61, "1m1s"}, {3599, "59m59s"}, {3600, "1h"}, {3659, "1h"}, {3725, "1h2m"}, {86399, "23h59m"}, {86400, "1d"},
		{90061, "1d1h"}, {400 * 86400, "400d"},
	}
	for _, tt := range tests {
		if got := span(tt.seconds); got != tt.want {
			t.Errorf("%v: want %q, got %q", tt.seconds, tt.want, got)
		}
	}
}

func TestLatency(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0.00ms": 0, "0.31ms": 314 * time.Microsecond, "9.99ms": 9990 * time.Microsecond, "12ms": 12300 * time.Microsecond,
		"999ms": 999 * time.Millisecond, "1.5s": 1500 * time.Millisecond,
	} {
		if got := latency(d.Seconds()); got != want {
			t.Errorf("%v: want %q, got %q", d, want, got)
		}
	}
}

func TestTable(t *testing.T) {
	tb := table{indent: "> ", right: map[int]bool{1: true}, paint: func(i int, s string) string {
		if i == 0 {
			return "<" + s + ">"
		}
		return s
	}}
	tb.row("NAME", "N", "")
	tb.line("a line of its own, longer than every column")
	tb.row("é", "10", "last\n")
	tb.row("long name", "5", "")
	var b strings.Builder
	tb.write(&b)
	want := "> <NAME>        N\n" +
		"a line of its own, longer than every column\n" +
		"> <é>          10  last\\n\n" +
		"> <long name>   5\n"
	if b.String() != want {
		t.Errorf("want\n%s\ngot\n%s", want, b.String())
	}
}

func TestPrintable(t *testing.T) {
	tests := []struct{ in, want string }{
		{"plain – ünï 世界", "plain – ünï 世界"},
		{"esc \x1b[31m", `esc \x1b[31m`},
		{"nul \x00 tab \t", `nul \x00 tab \t`},
		{"c1 \u009b", `c1 \u009b`},
		{"right to left \u202e", `right to left \u202e`},
		{"not UTF-8 \xff", `not UTF-8 \ufffd`},
	}
	for _, tt := range tests {
		if got := printable(tt.in); got != tt.want {
			t.Errorf("want %q, got %q", tt.want, got)
		}
	}
}
