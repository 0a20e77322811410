package config

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestReadFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	const text = "virtual_services: []\n"
	if err := os.WriteFile(path("good"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("good", path("link")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(path("fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		file, want, err string
	}{
		{file: path("good"), want: text},
		{file: path("link"), want: text},
		{file: path("none"), err: "open " + path("none") + ": no such file or directory"},
		{file: dir, err: "read " + dir + ": is a directory"},
		{file: path("fifo"), err: "read " + path("fifo") + ": is a named pipe, want a regular file"},
		{file: "/dev/zero", err: "read /dev/zero: is a device, want a regular file"},
	}
	for _, tt := range tests {
		t.Run(filepath.Base(tt.file), func(t *testing.T) {
			t.Parallel()
			type outcome struct {
				data []byte
				err  error
			}
			done := make(chan outcome, 1)
			go func() {
				data, err := ReadFile(tt.file)
				done <- outcome{data, err}
			}()
			select {
			case got := <-done:
				text := ""
				if got.err != nil {
					text = got.err.Error()
				}
				if string(got.data) != tt.want || text != tt.err {
					t.Errorf("want %q, %q, got %q, %q", tt.want, tt.err, got.data, text)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("ReadFile hangs")
			}
		})
	}
}

// endless is a file without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	copy(p, strings.Repeat("#", len(p)))
	return len(p), nil
}

func TestReadAllIsBounded(t *testing.T) {
	t.Parallel()
	data, err := ReadAll(endless{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = Parse("endless", data)
	if want := "endless:1:1: the file is larger than 16 MiB"; err == nil || err.Error() != want {
		t.Errorf("Parse: want %q, got %v", want, err)
	}
}
