package vm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const cloudShow = `Package: linux-image-cloud-amd64
Source: linux-signed-amd64 (6.1.192+3)
Version: 6.1.192-3
Depends: linux-image-6.1.0-57-cloud-amd64 (= 6.1.192-3)
Description: Linux for x86-64 cloud (meta-package)
 Depends: not-a-field

Package: linux-image-cloud-amd64
Version: 6.1.100-1
`

const ubuntuShow = `Package: linux-image-6.8.0-151-generic
Version: 6.8.0-151.151
Depends: kmod, linux-base (>= 4.5ubuntu1~16.04.1), linux-modules-6.8.0-151-generic, linux-initramfs-tool | dracut, <odd>
`

const realShow = `Package: linux-image-6.1.0-57-cloud-amd64
Version: 6.1.192-3
Depends: kmod, linux-base (>= 4.3~), initramfs-tools (>= 0.120+deb8u2) | linux-initramfs-tool
`

func TestParseShow(t *testing.T) {
	tests := []struct {
		in   string
		want stanza
	}{
		{cloudShow, stanza{"linux-image-cloud-amd64", "6.1.192-3", []string{"linux-image-6.1.0-57-cloud-amd64"}}},
		{ubuntuShow, stanza{"linux-image-6.8.0-151-generic", "6.8.0-151.151", []string{"kmod", "linux-base", "linux-modules-6.8.0-151-generic", "linux-initramfs-tool"}}},
	}
	for _, tt := range tests {
		got, err := parseShow([]byte(tt.in))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("stanza (-want +got):\n%s", diff)
		}
	}
	for _, in := range []string{"", "\n\n", "garbage", "Package: x\n", "Version: 1\n"} {
		if s, err := parseShow([]byte(in)); err == nil {
			t.Errorf("parseShow(%q) = %+v, want an error", in, s)
		}
	}
}

// fakeApt is an archive of packages: name -> what apt-cache show prints.
type fakeApt struct {
	shows  map[string]string
	update map[string]string // what a refresh of the lists brings
	broken bool              // unpacking stops half way
	calls  []string
}

func (f *fakeApt) run(_ context.Context, dir, name string, args ...string) ([]byte, error) {
	f.calls = append(f.calls, name+" "+args[0])
	switch name + " " + args[0] {
	case "apt-cache show":
		if s, ok := f.shows[args[len(args)-1]]; ok {
			return []byte(s), nil
		}
		return nil, errors.New("exit status 100")
	case "apt-get update":
		f.shows = f.update
		return nil, nil
	case "apt-get download":
		for _, p := range args[2:] {
			if err := os.WriteFile(filepath.Join(dir, p+"_1_amd64.deb"), nil, 0o600); err != nil {
				return nil, err
			}
		}
		return nil, nil
	case "dpkg-deb -x":
		release := strings.TrimPrefix(strings.TrimSuffix(filepath.Base(args[1]), "_1_amd64.deb"), "linux-image-")
		files := []string{"boot/vmlinuz-" + release, "lib/modules/" + release + "/kernel/net/ip_vs.ko"}
		for _, file := range files {
			file = filepath.Join(args[2], file)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				return nil, err
			}
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				return nil, err
			}
			if f.broken {
				return nil, errors.New("no space left on device")
			}
		}
		return nil, nil
	}
	return nil, errors.New("unexpected call")
}

func TestFindKernel(t *testing.T) {
	f := &fakeApt{
		// The lists are empty at first, as on a fresh machine.
		update: map[string]string{
			"linux-image-cloud-amd64":          cloudShow,
			"linux-image-6.1.0-57-cloud-amd64": realShow,
		},
		broken: true,
	}
	cache := t.TempDir()
	if _, err := findKernel(t.Context(), &apt{run: f.run}, cache, KernelNewest); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Fatalf("error = %v, want the one of the unpacker", err)
	}
	left, err := os.ReadDir(filepath.Join(cache, "kernels"))
	if err != nil || len(left) != 0 {
		t.Fatalf("a broken download left %v, %v in the cache", left, err)
	}
	f.broken = false
	want := filepath.Join(cache, "kernels/linux-image-6.1.0-57-cloud-amd64_6.1.192-3")
	for range 2 {
		k, err := findKernel(t.Context(), &apt{run: f.run}, cache, KernelNewest)
		if err != nil {
			t.Fatal(err)
		}
		if k.release != "6.1.0-57-cloud-amd64" || k.dir != want {
			t.Errorf("kernel = %+v, want that of %s", k, want)
		}
	}
	// Two tries, the broken one too; the third found the cache.
	if n := countOf(f.calls, "apt-get download"); n != 2 {
		t.Errorf("%d downloads, want 2", n)
	}
	if n := countOf(f.calls, "apt-get update"); n != 1 {
		t.Errorf("%d refreshes of the lists, want 1", n)
	}
}

func TestFindKernelGone(t *testing.T) {
	const name = "linux-image-6.1.0-50-cloud-amd64"
	f := &fakeApt{shows: map[string]string{name: strings.ReplaceAll(realShow, "-57-", "-50-")}}
	cache := t.TempDir()
	_, err := findKernel(t.Context(), &apt{run: f.run}, t.TempDir(), "linux-image-6.1.0-1-amd64")
	for _, want := range []string{"linux-image-6.1.0-1-amd64", "snapshot.debian.org"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error = %v, want it to name %s", err, want)
		}
	}
	f.shows = map[string]string{name: strings.ReplaceAll(realShow, "-57-", "-50-")}
	if _, err := findKernel(t.Context(), &apt{run: f.run}, cache, name); err != nil {
		t.Fatal(err)
	}
	// The archive drops it; the cache still has it.
	f.shows = nil
	if k, err := findKernel(t.Context(), &apt{run: f.run}, cache, name); err != nil || k.release != "6.1.0-50-cloud-amd64" {
		t.Errorf("kernel = %+v, %v, want the cached one", k, err)
	}
}

func TestFindKernelRemembers(t *testing.T) {
	f := &fakeApt{shows: map[string]string{
		"linux-image-cloud-amd64":          cloudShow,
		"linux-image-6.1.0-57-cloud-amd64": realShow,
	}}
	a := &apt{run: f.run, lists: t.TempDir()}
	cache := t.TempDir()
	find := func(wantShows int) {
		t.Helper()
		f.calls = nil
		if _, err := findKernel(t.Context(), a, cache, KernelNewest); err != nil {
			t.Fatal(err)
		}
		if n := countOf(f.calls, "apt-cache show"); n != wantShows {
			t.Errorf("apt-cache was called %d times, want %d", n, wantShows)
		}
	}
	find(2)
	find(0)
	if err := os.Chtimes(a.lists, time.Time{}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	find(2)
	if err := os.WriteFile(filepath.Join(cache, "kernels/cloud.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	find(2)
}

func countOf(all []string, want string) int {
	n := 0
	for _, s := range all {
		if s == want {
			n++
		}
	}
	return n
}
