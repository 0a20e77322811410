package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// kernelMetas are the packages that stand for a distribution's newest kernel,
// best first: small cloud kernels boot fastest. The last two are Ubuntu's.
var kernelMetas = []string{
	"linux-image-cloud-amd64", "linux-image-amd64",
	"linux-image-virtual", "linux-image-generic",
}

// errNoPackage says that apt knows no such package.
var errNoPackage = errors.New("package not in the apt sources of this host")

// aptLists is the folder of apt's package lists.
const aptLists = "/var/lib/apt/lists"

// apt asks the host's apt. The fields exist for tests.
type apt struct {
	// run runs a program in dir and returns its standard output.
	run func(ctx context.Context, dir, name string, args ...string) ([]byte, error)
	// lists is the folder of the package lists.
	lists string
	// updated says that the package lists were refreshed.
	updated bool
}

// stanza is one package's paragraph of `apt-cache show`.
type stanza struct {
	Package, Version string
	Depends          []string
}

// dependency matches the name of a dependency, without its version.
var dependency = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]+`)

// parseShow reads the first paragraph of `apt-cache show`.
func parseShow(text []byte) (stanza, error) {
	var s stanza
	for line := range strings.SplitSeq(string(text), "\n") {
		if line == "" && s.Package != "" {
			break
		}
		// A line that starts with a blank continues a field we do not need.
		key, value, ok := strings.Cut(line, ": ")
		if !ok {
			continue
		}
		switch key {
		case "Package":
			s.Package = value
		case "Version":
			s.Version = value
		case "Depends":
			for d := range strings.SplitSeq(value, ",") {
				if name := dependency.FindString(strings.TrimSpace(d)); name != "" {
					s.Depends = append(s.Depends, name)
				}
			}
		}
	}
	if s.Package == "" || s.Version == "" {
		return stanza{}, fmt.Errorf("apt-cache show: no package in its output")
	}
	return s, nil
}

// versionedKernel returns the dependency of a kernel meta package that holds
// the kernel itself, or "".
func versionedKernel(s stanza) string {
	for _, d := range s.Depends {
		rest, ok := strings.CutPrefix(d, "linux-image-")
		if ok && rest != "" && rest[0] >= '0' && rest[0] <= '9' {
			return d
		}
	}
	return ""
}

// show returns what apt knows of a package, after one refresh of the package
// lists where it knows nothing. The error matches errNoPackage.
func (a *apt) show(ctx context.Context, name string) (stanza, error) {
	out, err := a.run(ctx, "", "apt-cache", "show", "--no-all-versions", name)
	if err == nil && len(bytes.TrimSpace(out)) > 0 {
		return parseShow(out)
	}
	if errors.Is(err, exec.ErrNotFound) || ctx.Err() != nil {
		return stanza{}, err
	}
	if !a.updated {
		a.updated = true
		if _, err := a.run(ctx, "", "apt-get", "update", "-q"); err != nil {
			return stanza{}, fmt.Errorf("%s: %w, and refreshing the lists did not work: %w", name, errNoPackage, err)
		}
		return a.show(ctx, name)
	}
	return stanza{}, fmt.Errorf("%s: %w", name, errNoPackage)
}

// newest returns the distribution's newest kernel package.
func (a *apt) newest(ctx context.Context) (stanza, error) {
	for _, meta := range kernelMetas {
		s, err := a.show(ctx, meta)
		if errors.Is(err, errNoPackage) {
			continue
		}
		if err != nil {
			return stanza{}, err
		}
		if name := versionedKernel(s); name != "" {
			return a.show(ctx, name)
		}
	}
	return stanza{}, fmt.Errorf("no kernel package (%s) in the apt sources of this host: run apt-get update",
		strings.Join(kernelMetas, ", "))
}

// unpack downloads the packages and unpacks them into dir.
func (a *apt) unpack(ctx context.Context, dir string, names ...string) error {
	debs, err := os.MkdirTemp(filepath.Dir(dir), ".deb-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(debs)
	if _, err := a.run(ctx, debs, "apt-get", append([]string{"download", "-q"}, names...)...); err != nil {
		return fmt.Errorf("download kernel: %w", err)
	}
	files, err := filepath.Glob(filepath.Join(debs, "*.deb"))
	if err != nil {
		return err
	}
	if len(files) != len(names) {
		return fmt.Errorf("download kernel: asked for %d packages, got %d", len(names), len(files))
	}
	for _, f := range files {
		if err := a.extract(ctx, f, dir); err != nil {
			return err
		}
	}
	return nil
}

func (a *apt) extract(ctx context.Context, deb, dir string) error {
	if _, err := a.run(ctx, "", "dpkg-deb", "-x", deb, dir); err != nil {
		return fmt.Errorf("unpack %s: %w", filepath.Base(deb), err)
	}
	return nil
}

// command runs a program and puts its last words into the error.
func command(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	// Fixed words, whatever the user's language.
	cmd.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, lastLine(stderr.String()))
	}
	return out, nil
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}
