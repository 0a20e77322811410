package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/lbd-project/lbd/internal/vm"
	"github.com/lbd-project/lbd/internal/vm/probe"
	"github.com/lbd-project/lbd/internal/vm/wire"
)

// task is one program to run, wherever that is.
type task struct {
	// file and dir are the program and its working folder on the host;
	// guestFile and guestDir are the same in the guest.
	file, dir, guestFile, guestDir string
	args                           []string
	timeout                        time.Duration
}

// place is where tasks run.
type place interface {
	// release names the kernel there.
	release() string
	// run runs the tasks one after the other.
	run(ctx context.Context, w work) (*vm.Report, error)
}

// work is what a place shall do.
type work struct {
	tasks []task
	// env is the environment that does not depend on the place.
	env   []string
	image *vm.Image
	sink  vm.Sink
	// out is the host's folder for files that come back; "" is none.
	out   string
	retry vm.Retry
	// preload are modules of the guest to load before each task.
	preload []string
}

// placeFlags are the flags that choose a place.
type placeFlags struct {
	kernel string
	onHost bool
	debug  bool
	opt    vm.Options
}

func (a *app) placeFlags(fs *flag.FlagSet) *placeFlags {
	p := new(placeFlags)
	kernel := a.getenv("LBD_VM_KERNEL")
	if kernel == "" {
		kernel = vm.KernelNewest
	}
	fs.StringVar(&p.kernel, "kernel", kernel, "kernel `package`, or a .deb file; cloud is the newest")
	fs.BoolVar(&p.onHost, "on-host", false, "run in a fresh network namespace of this host, which must have IPVS")
	fs.BoolVar(&p.debug, "debug", false, "tell how long the rig's steps take")
	fs.IntVar(&p.opt.CPUs, "cpus", 2, "`number` of the guest's processors")
	fs.IntVar(&p.opt.MemoryMB, "memory", 1024, "the guest's memory in `MiB`")
	return p
}

// open makes the place that flags and environment ask for.
func (a *app) open(ctx context.Context, p *placeFlags) (place, error) {
	where := a.getenv("LBD_VM")
	if p.onHost {
		where = "host"
	}
	switch where {
	case "", "vm":
	case "host":
		if err := probe.IPVS(); err != nil {
			return nil, fmt.Errorf("this host can not run kernel tests: %w", err)
		}
		return host{a.logger(p.debug)}, nil
	case "auto":
		if probe.IPVS() == nil {
			return host{a.logger(p.debug)}, nil
		}
	default:
		return nil, usageError(fmt.Sprintf("LBD_VM=%s is none of vm, host, auto", where))
	}
	p.opt.Kernel = p.kernel
	p.opt.Accel = a.getenv("LBD_VM_ACCEL")
	p.opt.Cache = a.getenv("LBD_VM_CACHE")
	p.opt.Log = a.logger(p.debug)
	m, err := vm.Open(ctx, p.opt)
	if err != nil {
		return nil, err
	}
	return guest{m}, nil
}

// guest is the virtual machine.
type guest struct{ machine *vm.Machine }

func (g guest) release() string { return g.machine.Release() }

func (g guest) run(ctx context.Context, w work) (*vm.Report, error) {
	q := vm.Request{Image: w.image, Sink: w.sink, KernelLog: true, Retry: w.retry, Preload: w.preload}
	env := append([]string{
		"PATH=/app:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "USER=root", "TMPDIR=/tmp",
		"LBD_OUT=" + wire.OutDir,
	}, w.env...)
	for _, t := range w.tasks {
		q.Commands = append(q.Commands, wire.Command{
			Path: t.guestFile, Args: t.args, Env: env, Dir: t.guestDir, Timeout: t.timeout,
		})
	}
	if w.out == "" {
		return g.machine.Run(ctx, q)
	}
	files, err := os.CreateTemp("", "lbd-vm-out-")
	if err != nil {
		return nil, err
	}
	defer os.Remove(files.Name())
	defer files.Close()
	q.Files = files
	r, err := g.machine.Run(ctx, q)
	if err != nil {
		return nil, err
	}
	if _, err := files.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return r, vm.ExtractFiles(files, w.out)
}

// passedOn are the variables of the host's environment that programs get, with
// all that start with LBD_ but not with LBD_VM.
var passedOn = []string{"TERM", "COLUMNS", "LINES", "NO_COLOR", "GODEBUG", "GOTRACEBACK", "GORACE", "GOMAXPROCS"}

// programEnv returns the environment to pass on, with the defaults where the
// caller's environ has no such variable.
func programEnv(environ []string, defaults ...string) []string {
	var out []string
	have := make(map[string]bool)
	for _, e := range append(environ, defaults...) {
		name, _, _ := strings.Cut(e, "=")
		wanted := strings.HasPrefix(name, "LBD_") && !strings.HasPrefix(name, "LBD_VM") && name != "LBD_OUT"
		for _, p := range passedOn {
			wanted = wanted || name == p
		}
		if wanted && !have[name] {
			have[name] = true
			out = append(out, e)
		}
	}
	return out
}
