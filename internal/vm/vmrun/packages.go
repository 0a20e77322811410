package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// pkg is what `go list -json` says of a package.
type pkg struct {
	Dir, ImportPath           string
	Module                    struct{ Path, Dir string }
	TestGoFiles, XTestGoFiles []string
	Match                     []string
}

// rel returns the package's folder below the module's.
func (p pkg) rel() string {
	return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, p.Module.Path), "/")
}

// short returns the package as a person would name it in the module's folder.
func (p pkg) short() string { return "./" + p.rel() }

// listPackages returns the packages that the patterns name. Of those that only
// a pattern with "..." named, it drops the ones without a function that keep
// wants.
func listPackages(ctx context.Context, patterns []string, keep selection) ([]pkg, error) {
	args := append([]string{"list", "-json=Dir,ImportPath,Module,TestGoFiles,XTestGoFiles,Match", "--"}, patterns...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	all, err := decodePackages(bytes.NewReader(out))
	if err != nil {
		return nil, err
	}
	var wanted []pkg
	for _, p := range all {
		named := false
		for _, m := range p.Match {
			named = named || !strings.Contains(m, "...")
		}
		has, err := hasTest(p, keep)
		if err != nil {
			return nil, err
		}
		if named || has {
			wanted = append(wanted, p)
		}
	}
	if len(wanted) == 0 {
		return nil, fmt.Errorf("nothing to run in %s", strings.Join(patterns, " "))
	}
	return wanted, nil
}

func decodePackages(r io.Reader) ([]pkg, error) {
	var all []pkg
	for d := json.NewDecoder(r); ; {
		var p pkg
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		all = append(all, p)
	}
}

// selection tells which test functions shall run; a nil field is none of them.
type selection struct{ tests, benchmarks *regexp.Regexp }

func (s selection) wants(name string) bool {
	switch {
	case strings.HasPrefix(name, "Test"):
		return s.tests != nil && s.tests.MatchString(name)
	case strings.HasPrefix(name, "Benchmark"):
		return s.benchmarks != nil && s.benchmarks.MatchString(name)
	}
	return false
}

// hasTest says whether a test file of p has a function that keep wants.
func hasTest(p pkg, keep selection) (bool, error) {
	for _, f := range append(p.TestGoFiles, p.XTestGoFiles...) {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, f), nil, parser.SkipObjectResolution)
		if err != nil {
			return false, err
		}
		for _, d := range file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if ok && fn.Recv == nil && keep.wants(fn.Name.Name) {
				return true, nil
			}
		}
	}
	return false, nil
}

// buildTest builds a package's test binary.
func buildTest(ctx context.Context, p pkg, file string, race bool) error {
	args := []string{"test", "-c", "-o", file}
	// Without the race detector a program needs no C library.
	env := append(os.Environ(), "CGO_ENABLED=0")
	if race {
		args = append(args, "-race")
		env = append(os.Environ(), "CGO_ENABLED=1")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, p.ImportPath)...)
	cmd.Env = env
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build tests of %s: %w", p.short(), err)
	}
	if _, err := os.Stat(file); err != nil {
		return fmt.Errorf("%s has no tests", p.short())
	}
	return nil
}
