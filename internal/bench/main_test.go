package bench

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
)

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		args   []string
		status int
		want   string // what is told; empty for nothing, "*" for anything
	}{
		{[]string{"-n", "3", "-bin", "b"}, 0, ""},
		{nil, 0, ""},
		{[]string{"-n", "9"}, 2, "bench-x: a number is out of range\n"},
		{[]string{"more"}, 2, "bench-x: there is an argument: \"more\"\n"},
		{[]string{"-unknown"}, 2, "*"},
		{[]string{"-h"}, 2, "*"},
	} {
		fs := new(flag.FlagSet)
		n := fs.Int("n", 1, "")
		var bin string
		BinFlag(fs, &bin)
		var errOut bytes.Buffer
		status := Parse(fs, tt.args, &errOut, "bench-x", func() error {
			if *n > 5 {
				return ErrRange
			}
			return nil
		})
		if status != tt.status || tt.want != "*" && errOut.String() != tt.want || tt.want == "*" && errOut.Len() == 0 {
			t.Errorf("%q: want %d %q, got %d %q", tt.args, tt.status, tt.want, status, &errOut)
		}
	}
}

func TestBeside(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if got := Beside(filepath.Base(exe)); got != exe {
		t.Errorf("want %s, got %s", exe, got)
	}
	var bin string
	BinFlag(new(flag.FlagSet), &bin)
	if want := filepath.Dir(exe); bin != want {
		t.Errorf("the default: want %s, got %s", want, bin)
	}
}
