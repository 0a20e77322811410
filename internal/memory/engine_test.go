package memory

import (
	"os"
	"strings"
	"testing"
)

// loadEngine opens the store as the next lbd would, and loads the engine's file.
func (h *host) loadEngine(t *testing.T) string {
	t.Helper()
	s := h.open(t)
	defer s.Close()
	b, err := s.EngineFile().Load()
	if err != nil {
		t.Fatalf("Load: %v", err)
	}
	return string(b)
}

func (h *host) saveEngine(t *testing.T, data string) {
	t.Helper()
	s := h.open(t)
	defer s.Close()
	if err := s.EngineFile().Save([]byte(data)); err != nil {
		t.Fatal(err)
	}
}

func TestEngineFile(t *testing.T) {
	h := newHost(t)
	if got := h.loadEngine(t); got != "" {
		t.Errorf("before the first Save: want nothing, got %q", got)
	}
	const data = "line\n\x00\xffline\n"
	h.saveEngine(t, "before")
	h.saveEngine(t, data)
	if got := h.loadEngine(t); got != data {
		t.Errorf("want %q, got %q", data, got)
	}
	if info, err := os.Stat(h.file(engineName)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode: want 0600, got %v, %v", info.Mode(), err)
	}
	if got := h.reload(t); got.Owned != nil {
		t.Errorf("the memory has become %+v", got)
	}

	// An interrupted save leaves a file that goes.
	if err := os.WriteFile(h.file("."+engineName+"123"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.loadEngine(t)
	if _, err := os.Stat(h.file("." + engineName + "123")); err == nil {
		t.Error("what an interrupted save left is still there")
	}

	// Another boot has none of it.
	h.boot = "boot-2"
	if got := h.loadEngine(t); got != "" {
		t.Errorf("after a boot: want nothing, got %q", got)
	}

	h.saveEngine(t, "")
	h.saveEngine(t, "")
	if _, err := os.Stat(h.file(engineName)); err == nil {
		t.Error("an empty file is still there")
	}
}

// What others wrote is moved aside, with a word in the log.
func TestEngineFileForeign(t *testing.T) {
	for _, tt := range []struct {
		name  string
		plant func(t *testing.T, path string)
	}{
		{"no line", func(t *testing.T, path string) { plant(t, path, "boot-1", 0o600) }},
		{"writable by others", func(t *testing.T, path string) { plant(t, path, "boot-1\ndata", 0o666) }},
		{"symbolic link", func(t *testing.T, path string) {
			if err := os.Symlink("/etc/hostname", path); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost(t)
			h.saveEngine(t, "")
			tt.plant(t, h.file(engineName))
			if got := h.loadEngine(t); got != "" {
				t.Errorf("want nothing, got %q", got)
			}
			if !strings.Contains(h.log.String(), engineName+corruptSuffix) {
				t.Errorf("log: want the name of the moved file, got %q", h.log.String())
			}
			if _, err := os.Lstat(h.file(engineName + corruptSuffix)); err != nil {
				t.Error(err)
			}
		})
	}
}

func plant(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}
