package daemon

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/internal/memory"
	"github.com/lbd-project/lbd/internal/memory/files"
	"github.com/lbd-project/lbd/internal/memory/state"
)

func TestOpenOverrides(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	dir := filepath.Join(t.TempDir(), "lbd")
	c := &config.Config{StateFile: filepath.Join(dir, "state.json")}
	k, file, err := openOverrides(c, log)
	if err != nil || k.err != nil || k.store == nil {
		t.Fatalf("first start: %+v, %v", k, err)
	}
	if err := k.store.Save(state.Overrides{dkey(vip, rs2): {Mode: state.ModeDrain}}); err != nil {
		t.Fatal(err)
	}
	var locked *files.LockedError
	if _, _, err := openOverrides(c, log); !errors.As(err, &locked) || !strings.Contains(err.Error(), "each lbd needs one of its own") {
		t.Errorf("another lbd with the same file: want a LockedError, got %v", err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if k, file, err = openOverrides(c, log); err != nil || len(k.overrides) != 1 {
		t.Fatalf("second start: want one override, got %+v, %v", k, err)
	}
	file.Close()

	if err := os.WriteFile(c.StateFile, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if k, file, err = openOverrides(c, log); err != nil || k.err != nil || len(k.warnings) != 1 || k.store == nil {
		t.Fatalf("a broken file: want a warning, got %+v, %v", k, err)
	}
	file.Close()

	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if k, file, err = openOverrides(c, log); err != nil || k.err == nil || k.store != nil {
		t.Fatalf("a directory that everybody may write to: want an error in it, got %+v, %v", k, err)
	}
	file.Close()
	if k, file, err = openOverrides(&config.Config{}, log); err != nil || k.err != nil || k.store != nil {
		t.Fatalf("no state file: got %+v, %v", k, err)
	}
	file.Close()
}

// TestStateFileOfTheMemory refuses a file that is written over already.
func TestStateFileOfTheMemory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	store, err := memory.Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	bad, ok := errors.AsType[*ConfigError](checkStateFile(store, filepath.Join(dir, "state.json")))
	if !ok || !strings.Contains(bad.Error(), "state_file: "+dir+"/state.json is where lbd keeps") {
		t.Errorf("want a ConfigError, got %v", bad)
	}
	for _, path := range []string{"", filepath.Join(dir, "admin.json")} {
		if err := checkStateFile(store, path); err != nil {
			t.Errorf("%q: %v", path, err)
		}
	}
}
