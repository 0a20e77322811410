package main

import (
	"fmt"
	"os"

	"github.com/lbd-project/lbd/internal/vm/lo"
	"golang.org/x/sys/unix"
)

// prepare makes the guest a place where programs find what they expect.
func prepare() error {
	mounts := []struct{ target, fstype, data string }{
		{"/proc", "proc", ""},
		{"/sys", "sysfs", ""},
		{"/dev", "devtmpfs", ""},
		{"/dev/pts", "devpts", "ptmxmode=0666"},
		{"/dev/shm", "tmpfs", "mode=1777"},
		{"/tmp", "tmpfs", "mode=1777"},
		{"/run", "tmpfs", "mode=755"},
	}
	for _, m := range mounts {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
		if err := unix.Mount(m.fstype, m.target, m.fstype, 0, m.data); err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	for link, target := range map[string]string{
		"/dev/fd":     "/proc/self/fd",
		"/dev/stdin":  "/proc/self/fd/0",
		"/dev/stdout": "/proc/self/fd/1",
		"/dev/stderr": "/proc/self/fd/2",
	} {
		if err := os.Symlink(target, link); err != nil {
			return err
		}
	}
	// The tun module is loaded by opening its node (MODULE_ALIAS_MISCDEV), so
	// the node must be there first.
	if err := os.MkdirAll("/dev/net", 0o755); err != nil {
		return err
	}
	if err := unix.Mknod("/dev/net/tun", unix.S_IFCHR|0o666, int(unix.Mkdev(10, 200))); err != nil && err != unix.EEXIST {
		return fmt.Errorf("make /dev/net/tun: %w", err)
	}
	if err := unix.Sethostname([]byte("lbd-vm")); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	// Process 1 starts with the kernel's small default; tests open thousands.
	limit := unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("raise the limit of open files: %w", err)
	}
	if err := lo.Up(); err != nil {
		return err
	}
	// Nothing asks for these by an alias that reaches modprobe without udev.
	return modprobe([]string{"-a", "virtio_pci", "virtio_console"})
}
