package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/lbd-project/lbd/internal/vm/kmod"
	"github.com/lbd-project/lbd/internal/vm/wire"
	"golang.org/x/sys/unix"
)

// modprobe loads the modules that args name and all that they need. It takes
// the options that the kernel (-q --) and network tools (-va and the like) use,
// and ignores module parameters.
func modprobe(args []string) error {
	all, quiet, options := false, false, true
	var names []string
	for _, a := range args {
		switch {
		case options && a == "--":
			options = false
		case options && strings.HasPrefix(a, "-"):
			all = all || strings.Contains(a, "a")
			quiet = quiet || strings.Contains(a, "q")
		case all || len(names) == 0:
			names = append(names, a)
		}
	}
	x, err := readIndex()
	if err != nil {
		return err
	}
	order, err := x.Order(names...)
	if err != nil {
		if quiet {
			os.Exit(1)
		}
		return err
	}
	var release unix.Utsname
	if err := unix.Uname(&release); err != nil {
		return err
	}
	dir := filepath.Join("/lib/modules", unix.ByteSliceToString(release.Release[:]))
	for _, m := range order {
		if isLoaded(m.Name) {
			continue
		}
		if err := load(filepath.Join(dir, m.Path)); err != nil {
			return fmt.Errorf("load %s: %w", m.Name, err)
		}
	}
	return nil
}

func readIndex() (*kmod.Index, error) {
	f, err := os.Open(wire.IndexFile)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return kmod.Decode(f)
}

// isLoaded says that a module is in the kernel and ready. The kernel would say
// so too, but only after it has read and checked the file.
func isLoaded(name string) bool {
	state, err := os.ReadFile(filepath.Join("/sys/module", name, "initstate"))
	return err == nil && strings.TrimSpace(string(state)) == "live"
}

func load(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	err = unix.FinitModule(int(f.Fd()), "", 0)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}
