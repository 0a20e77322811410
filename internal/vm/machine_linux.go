package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/lbd-project/lbd/internal/vm/wire"
)

// Options choose a machine. The zero value of each field has a default.
type Options struct {
	// Kernel is KernelNewest (the default), the name of a kernel package, or
	// the path of a kernel's .deb file.
	Kernel string
	// Cache is the folder for kernels. The default is CacheDir().
	Cache string
	// Accel is "auto" (the default: KVM where a probe shows that it works),
	// "kvm" or "tcg".
	Accel string
	// CPUs is the number of the guest's processors. The default is 2.
	CPUs int
	// MemoryMB is the guest's memory in MiB. The default is 1024.
	MemoryMB int
	// Log takes progress; nil discards it.
	Log *slog.Logger
}

// Machine is a kernel that is ready to boot. Its methods are safe for
// concurrent use.
type Machine struct {
	opt    Options
	log    *slog.Logger
	qemu   string
	kernel kernel
	base   string
	init   []byte
	accel  string
}

// CacheDir returns the folder where kernels are kept: lbd in the user's cache
// folder, or .cache in the working folder for a user without a home.
func CacheDir() string {
	if dir, err := os.UserCacheDir(); err == nil {
		return filepath.Join(dir, "lbd")
	}
	return ".cache"
}

// Open finds QEMU and the kernel, downloading it on first use, and builds the
// guest's init program with the host's go command.
func Open(ctx context.Context, o Options) (*Machine, error) {
	if o.Kernel == "" {
		o.Kernel = KernelNewest
	}
	if o.Cache == "" {
		o.Cache = CacheDir()
	}
	if o.CPUs == 0 {
		o.CPUs = 2
	}
	if o.MemoryMB == 0 {
		o.MemoryMB = 1024
	}
	cache, err := filepath.Abs(o.Cache)
	if err != nil {
		return nil, err
	}
	m := &Machine{opt: o, log: o.Log}
	if m.log == nil {
		m.log = slog.New(slog.DiscardHandler)
	}
	if m.qemu, err = lookTool("qemu-system-x86_64"); err != nil {
		return nil, err
	}
	begin := time.Now()
	if m.kernel, err = findKernel(ctx, &apt{run: command, lists: aptLists}, cache, o.Kernel); err != nil {
		return nil, err
	}
	m.log.Debug("found kernel", "release", m.kernel.release, "took", time.Since(begin))
	begin = time.Now()
	if m.base, err = baseArchive(m.kernel); err != nil {
		return nil, err
	}
	m.log.Debug("have modules", "took", time.Since(begin))
	begin = time.Now()
	if m.init, err = buildInit(ctx, cache); err != nil {
		return nil, err
	}
	m.log.Debug("built init", "took", time.Since(begin))
	m.accel, err = m.chooseAccel(ctx, cache, o.Accel)
	return m, err
}

// Release returns the kernel's release, as uname -r prints it in the guest.
func (m *Machine) Release() string { return m.kernel.release }

// Request is what one boot shall do.
type Request struct {
	// Image holds the files. It may be nil.
	Image *Image
	// Commands run one after the other. Each needs a time-out.
	Commands []wire.Command
	// Preload are modules to load before each command.
	Preload []string
	// Sink takes what the guest says.
	Sink Sink
	// Files takes a tar archive of what the commands left in wire.OutDir; nil
	// leaves it in the guest. It is what a program in the guest wrote: extract
	// it with care.
	Files io.Writer
	// KernelLog asks for the kernel's whole log.
	KernelLog bool
	// Retry says when a guest without a result is started once more.
	Retry Retry
}

// Retry says when to boot a second time.
type Retry int

// Retry rules. A kernel panic after a command began is never retried.
const (
	// RetryBoot retries when no command had begun.
	RetryBoot Retry = iota
	// RetryAll retries also when commands had begun; they run again.
	RetryAll
)

// Report is what came of a boot with a result.
type Report struct {
	// Release is the guest kernel's release.
	Release string
	// Exits has one entry a command.
	Exits []wire.Exit
	// Alarms are the kernel log's lines that tell of a fault in the kernel.
	Alarms []string
	// KernelLog is the kernel's log where it was asked for.
	KernelLog []byte
}

// endGrace is what a guest may take beside its commands' time-outs: the stack
// dump, the files.
const endGrace = time.Minute

// Run boots a guest, runs the commands and returns the report. The error
// matches ErrNoResult when the guest gave none; that commands fail is no error.
func (m *Machine) Run(ctx context.Context, q Request) (*Report, error) {
	dir, err := os.MkdirTemp("", "lbd-vm-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	initrd := filepath.Join(dir, "initrd")
	if err := m.writeInitrd(initrd, q); err != nil {
		return nil, err
	}
	limit := endGrace
	for _, c := range q.Commands {
		limit += c.Timeout + endGrace/2
	}
	for try := 1; ; try++ {
		begin := time.Now()
		o := &outcome{sink: q.Sink, commands: len(q.Commands), files: q.Files}
		err := m.boot(ctx, dir, initrd, limit, o)
		m.log.Debug("guest ended", "try", try, "took", time.Since(begin), "err", err)
		if err == nil {
			return &Report{Release: o.result.Release, Exits: o.exits, Alarms: o.result.Alarms, KernelLog: o.log}, nil
		}
		var lost *NoResultError
		if try > 1 || !errors.As(err, &lost) || o.begun > 0 && (lost.Panic || q.Retry == RetryBoot) {
			return nil, err
		}
		m.log.Warn("no result from the guest, trying once more", "reason", lost.Reason)
	}
}

func (m *Machine) writeInitrd(file string, q Request) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	base, err := os.Open(m.base)
	if err != nil {
		return err
	}
	defer base.Close()
	if _, err := io.Copy(f, base); err != nil {
		return err
	}
	job := wire.Job{Commands: q.Commands, Preload: q.Preload, Out: q.Files != nil, Log: q.KernelLog}
	text, err := json.Marshal(job)
	if err != nil {
		return err
	}
	system := new(Image)
	system.addSystemFiles()
	system.AddText("/init", 0o755, m.init)
	system.AddText(wire.JobFile, 0o644, text)
	system.link("/usr/sbin/modprobe", "/init")
	for _, image := range []*Image{system, q.Image} {
		if image == nil {
			continue
		}
		if err := image.write(f); err != nil {
			return fmt.Errorf("write initial file system: %w", err)
		}
	}
	return f.Close()
}
