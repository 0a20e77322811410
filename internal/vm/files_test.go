package vm

import (
	"archive/tar"
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func archive(t *testing.T, headers ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		if h.Typeflag == tar.TypeReg {
			h.Size = 4
		}
		h.Mode = 0o644
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := w.Write([]byte("data")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func tree(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			out = append(out, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestExtractFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	err := ExtractFiles(bytes.NewReader(archive(t,
		tar.Header{Name: "sub/", Typeflag: tar.TypeDir},
		tar.Header{Name: "sub/a", Typeflag: tar.TypeReg},
		tar.Header{Name: "other/b", Typeflag: tar.TypeReg},
		tar.Header{Name: "link", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"},
		tar.Header{Name: "device", Typeflag: tar.TypeChar},
	)), dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"other/b", "sub/a"}, tree(t, dir)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "sub/a")); err != nil || string(got) != "data" {
		t.Errorf("sub/a = %q, %v, want its data", got, err)
	}
}

func TestExtractFilesStaysInside(t *testing.T) {
	for _, name := range []string{"../escaped", "/escaped", "link/escaped"} {
		top := t.TempDir()
		dir := filepath.Join(top, "in")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("..", filepath.Join(dir, "link")); err != nil {
			t.Fatal(err)
		}
		err := ExtractFiles(bytes.NewReader(archive(t, tar.Header{Name: name, Typeflag: tar.TypeReg})), dir)
		if err == nil {
			t.Errorf("%s: no error", name)
		}
		if _, err := os.Lstat(filepath.Join(top, "escaped")); err == nil {
			t.Errorf("%s was written outside of the folder", name)
		}
	}
}

func TestExtractFilesBroken(t *testing.T) {
	good := archive(t, tar.Header{Name: "a", Typeflag: tar.TypeReg})
	if err := ExtractFiles(bytes.NewReader(good[:514]), t.TempDir()); err == nil {
		t.Error("a cut archive gave no error")
	}
	if err := ExtractFiles(bytes.NewReader(bytes.Repeat([]byte("x"), 1024)), t.TempDir()); err == nil {
		t.Error("garbage gave no error")
	}
}
