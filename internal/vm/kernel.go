package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// KernelNewest is the name of the newest kernel that the host's distribution
// offers, Debian's small cloud kernel where there is one.
const KernelNewest = "cloud"

// kernel is an unpacked kernel.
type kernel struct {
	// dir is the folder it was unpacked in.
	dir string
	// release is its name in uname -r.
	release string
	// image is the file to boot.
	image string
	// modules is the folder lib/modules/<release>.
	modules string
}

// findKernel returns the kernel that name stands for: KernelNewest, a kernel
// package's name, or the path of a .deb file. It is downloaded into cache on
// first use.
func findKernel(ctx context.Context, a *apt, cache, name string) (kernel, error) {
	root := filepath.Join(cache, "kernels")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return kernel{}, err
	}
	if strings.HasSuffix(name, ".deb") {
		key := strings.TrimSuffix(filepath.Base(name), ".deb")
		return obtain(root, key, func(dir string) error { return a.extract(ctx, name, dir) })
	}
	s, err := remembered(a, root, name, func() (stanza, error) { return resolveKernel(ctx, a, name) })
	if err != nil {
		// An archive that has dropped the package is no reason to stop where
		// the cache still has it.
		if k, ok := cached(root, name); ok {
			return k, nil
		}
		return kernel{}, err
	}
	packages := []string{s.Package}
	for _, d := range s.Depends {
		// Ubuntu splits the modules off.
		if strings.HasPrefix(d, "linux-modules-") {
			packages = append(packages, d)
		}
	}
	key := s.Package + "_" + strings.ReplaceAll(s.Version, ":", "%3a")
	return obtain(root, key, func(dir string) error { return a.unpack(ctx, dir, packages...) })
}

// memory is what apt answered about a kernel, and when its lists were made.
type memory struct {
	Lists  time.Time
	Answer stanza
}

// remembered returns the answer of ask, or the one of last time where apt's
// lists are still the same: apt-cache takes a second or more to read them.
func remembered(a *apt, root, name string, ask func() (stanza, error)) (stanza, error) {
	file := filepath.Join(root, filepath.Base(name)+".json")
	lists, err := os.Stat(a.lists)
	if err != nil {
		return ask()
	}
	var m memory
	if text, err := os.ReadFile(file); err == nil && json.Unmarshal(text, &m) == nil &&
		m.Lists.Equal(lists.ModTime()) && m.Answer.Package != "" {
		return m.Answer, nil
	}
	s, err := ask()
	if err != nil {
		return s, err
	}
	// Asking may have refreshed the lists; then the next run asks again.
	text, err := json.Marshal(memory{lists.ModTime(), s})
	if err != nil {
		return s, err
	}
	return s, writeFile(file, text)
}

func resolveKernel(ctx context.Context, a *apt, name string) (stanza, error) {
	if name == KernelNewest {
		return a.newest(ctx)
	}
	s, err := a.show(ctx, name)
	if errors.Is(err, errNoPackage) {
		return stanza{}, fmt.Errorf("kernel %w: archives drop old kernels after a time; "+
			"take the package from https://snapshot.debian.org and give the file's path as the kernel, or name another kernel", err)
	}
	if err != nil {
		return stanza{}, err
	}
	// A meta package may be named as well.
	if v := versionedKernel(s); v != "" && !strings.HasPrefix(v, s.Package+"-unsigned") {
		return a.show(ctx, v)
	}
	return s, nil
}

// cached returns the newest cached kernel of a package.
func cached(root, name string) (kernel, bool) {
	dirs, err := filepath.Glob(filepath.Join(root, name+"_*"))
	if err != nil || len(dirs) == 0 {
		return kernel{}, false
	}
	slices.Sort(dirs)
	k, err := openKernel(dirs[len(dirs)-1])
	return k, err == nil
}

// obtain returns the kernel in root/key, after fill has put it there. A fill
// that fails half way leaves nothing under that name.
func obtain(root, key string, fill func(dir string) error) (kernel, error) {
	dir := filepath.Join(root, key)
	if _, err := os.Stat(dir); err == nil {
		return openKernel(dir)
	}
	tmp, err := os.MkdirTemp(root, ".new-")
	if err != nil {
		return kernel{}, err
	}
	defer os.RemoveAll(tmp)
	if err := fill(tmp); err != nil {
		return kernel{}, err
	}
	if _, err := openKernel(tmp); err != nil {
		return kernel{}, fmt.Errorf("%s: %w", key, err)
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return kernel{}, err
	}
	if err := os.Rename(tmp, dir); err != nil {
		// Another process may have been faster.
		if k, err := openKernel(dir); err == nil {
			return k, nil
		}
		return kernel{}, err
	}
	return openKernel(dir)
}

// openKernel looks at an unpacked package.
func openKernel(dir string) (kernel, error) {
	images, err := filepath.Glob(filepath.Join(dir, "boot", "vmlinuz-*"))
	if err != nil {
		return kernel{}, err
	}
	if len(images) != 1 {
		return kernel{}, fmt.Errorf("%s holds %d kernel images, not 1", dir, len(images))
	}
	k := kernel{dir: dir, image: images[0]}
	k.release = strings.TrimPrefix(filepath.Base(k.image), "vmlinuz-")
	for _, lib := range []string{"lib", "usr/lib"} {
		k.modules = filepath.Join(dir, lib, "modules", k.release)
		if _, err := os.Stat(filepath.Join(k.modules, "kernel")); err == nil {
			return k, nil
		}
	}
	return kernel{}, fmt.Errorf("%s holds no modules of %s", dir, k.release)
}
