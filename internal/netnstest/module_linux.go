package netnstest

import (
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// unloadTimeout is what UnloadIPVS waits: the kernel still cleans up after
// namespaces of earlier tests.
const unloadTimeout = 2 * time.Minute

// OwnsModules reports whether tests may unload kernel modules: only in the
// virtual machine of internal/vm, whose first process is its modprobe as well.
// Modules of other machines are left alone.
func OwnsModules() bool {
	init, err := os.Stat("/proc/1/exe")
	if err != nil {
		return false
	}
	modprobe, err := os.Stat("/sbin/modprobe")
	return err == nil && os.SameFile(init, modprobe)
}

// UnloadIPVS unloads ip_vs and the modules that use it. It calls clear before
// each attempt: a table that is not empty holds the module.
func UnloadIPVS(t TB, clear func()) {
	t.Helper()
	deadline := time.Now().Add(unloadTimeout)
	for {
		clear()
		holders, _ := filepath.Glob("/sys/module/ip_vs/holders/*")
		for _, h := range holders {
			_ = unix.DeleteModule(filepath.Base(h), unix.O_NONBLOCK)
		}
		err := unix.DeleteModule("ip_vs", unix.O_NONBLOCK)
		switch {
		case err == nil:
			return
		case time.Now().After(deadline):
			t.Fatalf("unload ip_vs, held by %v: %v", holders, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// StopAutoload keeps the kernel from loading modules until the test ends or the
// returned function is called.
func StopAutoload(t TB) (restore func()) {
	t.Helper()
	const helper = "/proc/sys/kernel/modprobe"
	before, err := os.ReadFile(helper)
	if err != nil {
		t.Fatalf("stop autoload: %v", err)
	}
	set := func(text []byte) {
		t.Helper()
		if err := os.WriteFile(helper, text, 0); err != nil {
			t.Fatalf("stop autoload: %v", err)
		}
	}
	set([]byte("/nonexistent"))
	restore = func() { set(before) }
	t.Cleanup(restore)
	return restore
}
