package rig

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/lbd-project/lbd/internal/netnstest"
)

// Build compiles the programs from the folder of their sources into dir, for
// tests; the Makefile does the same for the benchmarks. The test ends on an
// error.
func Build(ctx context.Context, t netnstest.TB, source, dir string) Programs {
	t.Helper()
	compile := func(name string) string {
		out := filepath.Join(dir, "bench-"+name)
		cmd := exec.CommandContext(ctx, "gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-static", "-pthread",
			"-o", out, filepath.Join(source, name+".c"))
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("gcc %s.c: %v", name, fmt.Errorf("%w\n%s", err, text))
		}
		return out
	}
	return Programs{Client: compile("client"), Server: compile("server")}
}
