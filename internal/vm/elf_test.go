package vm

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestLibraries compares with what the loader itself says of a program of this
// host.
func TestLibraries(t *testing.T) {
	sh, err := filepath.EvalSymlinks("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	interp, err := os.Stat("/lib64/ld-linux-x86-64.so.2")
	if err != nil || interp == nil {
		t.Fatalf("this host has no glibc for amd64: %v", err)
	}
	got, err := libraries(sh, libraryDirs)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("/lib64/ld-linux-x86-64.so.2", "--list", sh).Output()
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for line := range strings.Lines(string(out)) {
		for word := range strings.FieldsSeq(line) {
			if strings.HasPrefix(word, "/") {
				want = append(want, word)
			}
		}
	}
	// The loader is reached by two paths, and the list names one.
	if diff := cmp.Diff(baseNames(want), baseNames(got)); diff != "" {
		t.Errorf("libraries of %s (-want +got):\n%s", sh, diff)
	}
	if _, err := libraries(sh, []string{t.TempDir()}); err == nil || !strings.Contains(err.Error(), "needs library libc.so.6") {
		t.Errorf("error without folders = %v, want one that names the library", err)
	}
}

func baseNames(files []string) []string {
	var out []string
	for _, f := range files {
		out = append(out, filepath.Base(f))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func TestLibrariesRefuses(t *testing.T) {
	for name, data := range map[string][]byte{
		"garbage":  []byte("\x7fELF garbage"),
		"script":   []byte("#!/bin/sh\n"),
		"big arch": func() []byte { b := object("name=a\x00"); b[18] = 183; return b }(),
	} {
		file := filepath.Join(t.TempDir(), "program")
		if err := os.WriteFile(file, data, 0o755); err != nil {
			t.Fatal(err)
		}
		if libs, err := libraries(file, libraryDirs); err == nil {
			t.Errorf("%s: libraries = %v, want an error", name, libs)
		}
	}
}

func TestImage(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"a": 0o644, "sub/run": 0o755} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("#!/bin/sh\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	var m Image
	if err := m.Add(dir, "/src/x"); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"/src/x/a":       filepath.Join(dir, "a"),
		"/src/x/sub/run": filepath.Join(dir, "sub/run"),
	}
	if diff := cmp.Diff(want, m.files); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if err := m.Add(filepath.Join(dir, "absent"), "/x"); err == nil {
		t.Error("adding an absent file gave no error")
	}
	if _, err := m.AddTool("no-such-tool"); err == nil || err.Error() != "no-such-tool is not installed" {
		t.Errorf("error of an unknown tool = %v", err)
	}
	wantErr := "ipvsadm is not installed: apt-get install --no-install-recommends ipvsadm"
	if err := missingTool("ipvsadm"); err.Error() != wantErr {
		t.Errorf("error of a missing tool = %q, want %q", err, wantErr)
	}
	for in, want := range map[string]string{"/lib64/ld.so": "/usr/lib64/ld.so", "/usr/bin/x": "/usr/bin/x", "/opt/y": "/opt/y"} {
		if got := inUsr(in); got != want {
			t.Errorf("inUsr(%s) = %s, want %s", in, got, want)
		}
	}
}
