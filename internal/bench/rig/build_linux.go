package rig

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/lbd-project/lbd/internal/e2e"
	"github.com/lbd-project/lbd/internal/netnstest"
)

// Build compiles the programs from the folder of their sources into dir, for
// tests; the Makefile does the same for the benchmarks. The test ends on an
// error.
func Build(ctx context.Context, t netnstest.TB, source, dir string) Programs {
	t.Helper()
	p := ProgramsIn(dir)
	for name, out := range map[string]string{"client.c": p.Client, "server.c": p.Server} {
		cmd := exec.CommandContext(ctx, "gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-static", "-pthread",
			"-o", out, filepath.Join(source, name))
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("gcc %s: %v", name, fmt.Errorf("%w\n%s", err, text))
		}
	}
	return p
}

// BuildLBD puts lbd beside the programs in dir, for tests.
func BuildLBD(ctx context.Context, t netnstest.TB, dir string) {
	t.Helper()
	built, err := os.MkdirTemp(dir, "build-")
	if err != nil {
		t.Fatalf("%v", err)
	}
	lbd, _, err := e2e.Programs(ctx, built)
	if err == nil {
		err = os.Symlink(lbd, filepath.Join(dir, "lbd"))
	}
	if err != nil {
		t.Fatalf("lbd: %v", err)
	}
}
