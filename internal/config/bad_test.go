package config

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// readCase splits "-- config.yaml --", a file, "-- want --", what it gives.
func readCase(t *testing.T, path string) (config, want string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text, headed := strings.CutPrefix(string(b), "-- config.yaml --\n")
	config, want, split := strings.Cut(text, "-- want --\n")
	if !headed || !split {
		t.Fatalf("%s: want the sections config.yaml and want", path)
	}
	return config, want
}

// compareCase compares what a case gives with its golden section.
func compareCase(t *testing.T, path, config, want, got string) {
	t.Helper()
	if *update {
		text := "-- config.yaml --\n" + config + "-- want --\n" + got
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

func TestParseBad(t *testing.T) {
	paths, err := filepath.Glob("testdata/bad/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) < 60 {
		t.Errorf("want at least 60 bad files, got %d", len(paths))
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			config, want := readCase(t, path)
			c, err := Parse("lbd.yaml", []byte(config))
			var errs Errors
			if !errors.As(err, &errs) || len(errs) == 0 {
				t.Fatalf("want errors, got %v", err)
			}
			if c != nil {
				t.Errorf("want no Config beside an error, got %+v", c)
			}
			for _, e := range errs {
				if e.Line < 1 || e.Col < 1 {
					t.Errorf("error without a position: %v", e)
				}
			}
			compareCase(t, path, config, want, err.Error()+"\n")
		})
	}
}
