package cpio

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// entry is one archive member as the test reads it back.
type entry struct {
	Name string
	Mode uint64
	Data string
}

// read parses archives put one after the other, as the kernel does
// (init/initramfs.c).
func read(t *testing.T, b []byte) []entry {
	t.Helper()
	var out []entry
	for i := 0; i < len(b); {
		if i%4 != 0 || string(b[i:i+6]) != "070701" {
			t.Fatalf("no header at offset %d", i)
		}
		field := func(n int) uint64 {
			v, err := strconv.ParseUint(string(b[i+6+8*n:i+14+8*n]), 16, 32)
			if err != nil {
				t.Fatalf("field %d at offset %d: %v", n, i, err)
			}
			return v
		}
		mode, size, nameSize := field(1), int(field(6)), int(field(11))
		name := string(b[i+110 : i+110+nameSize-1])
		if b[i+110+nameSize-1] != 0 {
			t.Fatalf("name %q does not end with NUL", name)
		}
		data := (i + 110 + nameSize + 3) &^ 3
		if name != "TRAILER!!!" {
			out = append(out, entry{name, mode, string(b[data : data+size])})
		}
		i = (data + size + 3) &^ 3
	}
	return out
}

func TestWriter(t *testing.T) {
	var b bytes.Buffer
	for range 2 {
		w := NewWriter(&b)
		for _, err := range []error{
			w.File("/usr/bin/tool", 0o755, []byte("12345")),
			w.File("usr/bin/../bin/empty", 0o600, nil),
			w.Symlink("bin", "usr/bin"),
			w.Dir("usr"),
			w.Close(),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	one := []entry{
		{"usr", 0o040755, ""},
		{"usr/bin", 0o040755, ""},
		{"usr/bin/tool", 0o100755, "12345"},
		{"usr/bin/empty", 0o100600, ""},
		{"bin", 0o120777, "usr/bin"},
	}
	want := append(append([]entry{}, one...), one...)
	if diff := cmp.Diff(want, read(t, b.Bytes())); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
}

func TestWriterKeepsError(t *testing.T) {
	broken := errors.New("disk full")
	w := NewWriter(&limited{left: 200, err: broken})
	if err := w.File("a", 0o644, make([]byte, 1000)); !errors.Is(err, broken) {
		t.Errorf("File error = %v, want %v", err, broken)
	}
	if err := w.File("b", 0o644, nil); !errors.Is(err, broken) {
		t.Errorf("second File error = %v, want the first error %v", err, broken)
	}
	if err := w.Close(); !errors.Is(err, broken) {
		t.Errorf("Close error = %v, want %v", err, broken)
	}
}

func TestWriterRefusesRoot(t *testing.T) {
	w := NewWriter(new(bytes.Buffer))
	if err := w.File("/", 0o644, nil); err == nil || !strings.Contains(err.Error(), "root") {
		t.Errorf("File(/) error = %v, want one that names the root", err)
	}
}

type limited struct {
	left int
	err  error
}

func (l *limited) Write(p []byte) (int, error) {
	if l.left -= len(p); l.left < 0 {
		return 0, fmt.Errorf("write: %w", l.err)
	}
	return len(p), nil
}
