package config

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// Whatever the bytes, Parse gives a Config or errors with positions.
func FuzzParse(f *testing.F) {
	bad, err := filepath.Glob("testdata/bad/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range append(bad, goodFiles(f)...) {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, s := range plainSeeds {
		f.Add([]byte(s))
	}
	f.Add([]byte("\xff\xfe\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("lbd.yaml", data)
		if err == nil {
			if c == nil {
				t.Fatal("neither a Config nor an error")
			}
			return
		}
		var errs Errors
		if c != nil || !errors.As(err, &errs) || len(errs) == 0 {
			t.Fatalf("want a nil Config and Errors, got %v and %T %v", c, err, err)
		}
		if len(errs.Lines()) > maxShown+1 || len(errs) > maxKept {
			t.Errorf("%d errors in %d lines", len(errs), len(errs.Lines()))
		}
		for _, e := range errs {
			if e.File != "lbd.yaml" || e.Line < 1 || e.Col < 1 || e.Msg == "" {
				t.Errorf("error without a position: %+v", e)
			}
		}
	})
}
