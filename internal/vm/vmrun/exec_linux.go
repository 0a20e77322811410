package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/lbd-project/lbd/internal/vm"
)

// execMargin is how much longer the guest waits than a test's own -timeout,
// which prints the better stack dump.
const execMargin = 30 * time.Second

// exec is the command vmrun exec: go test calls it in the package's folder.
func (a *app) exec(ctx context.Context, args []string) (int, error) {
	if len(args) == 0 {
		return 0, usageError("exec needs a test binary")
	}
	flags := a.placeFlags(flag.NewFlagSet("vmrun exec", flag.ContinueOnError))
	dir, err := os.Getwd()
	if err != nil {
		return 0, err
	}
	rel := packageRel(dir)
	t := task{dir: dir, guestDir: sourceDir(rel), timeout: 10 * time.Minute}
	if t.file, err = filepath.Abs(args[0]); err != nil {
		return 0, err
	}
	t.guestFile = path.Join("/app", filepath.Base(args[0]))
	if t.args, err = execArgs(args[1:], &t.timeout); err != nil {
		return 0, err
	}
	w := work{
		image: new(vm.Image), env: programEnv(os.Environ(), requireTiers),
		tasks: []task{t}, sink: &copySink{a.stdout, a.stderr}, preload: testModules,
	}
	if err := w.image.Add(t.file, t.guestFile); err != nil {
		return 0, err
	}
	if err := addIfThere(w.image, filepath.Join(dir, "testdata"), path.Join(t.guestDir, "testdata")); err != nil {
		return 0, err
	}
	for _, tool := range testTools {
		if _, err := w.image.AddTool(tool); err != nil {
			return 0, err
		}
	}
	return a.one(ctx, flags, w)
}

// packageRel returns dir below the folder of the module it is in.
func packageRel(dir string) string {
	for root := dir; ; root = filepath.Dir(root) {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			rel, err := filepath.Rel(root, dir)
			if err != nil {
				break
			}
			return filepath.ToSlash(rel)
		}
		if root == filepath.Dir(root) {
			break
		}
	}
	return filepath.Base(dir)
}

// execArgs drops or refuses the arguments of go test that name host files, and
// takes the time limit from -test.timeout.
func execArgs(args []string, timeout *time.Duration) ([]string, error) {
	var out []string
	for _, a := range args {
		name, value, _ := strings.Cut(strings.TrimLeft(a, "-"), "=")
		switch name {
		case "test.testlogfile":
			// For go test's result cache; the files a guest reads are not the
			// host's.
			continue
		case "test.paniconexit0":
			out = append(out, a)
			continue
		case "test.coverprofile", "test.gocoverdir", "test.cpuprofile", "test.memprofile",
			"test.blockprofile", "test.mutexprofile", "test.trace", "test.outputdir":
			if value != "" {
				return nil, errors.New("-" + name + ": files of go test can not be written from the guest")
			}
		case "test.timeout":
			if d, err := time.ParseDuration(value); err == nil && d > 0 {
				*timeout = d + execMargin
			}
		}
		out = append(out, a)
	}
	return out, nil
}
