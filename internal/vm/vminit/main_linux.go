// Command vminit is the only program of ours in the VM rig's guest. It is
// three programs, told apart by how it is started:
//
//   - process 1: mounts what a Linux program expects, starts the agent, reaps
//     orphans, and restarts the machine, which ends the VM;
//   - the agent: runs the commands of the job and sends what they write;
//   - /sbin/modprobe: loads what the kernel, ipvsadm or keepalived ask for.
//
// It is static and needs nothing else in the guest: no shell, no libc, no udev.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

func main() {
	var err error
	switch {
	case filepath.Base(os.Args[0]) == "modprobe":
		err = modprobe(os.Args[1:])
	case os.Getpid() == 1:
		// Returns only when the machine could not be restarted.
		err = start()
	case len(os.Args) == 2 && os.Args[1] == agentArg:
		err = agent()
	default:
		err = fmt.Errorf("this program is process 1 of a virtual machine: vmrun starts it")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "vminit:", err)
		os.Exit(1)
	}
}

// start is process 1.
func start() error {
	if err := boot(); err != nil {
		fmt.Fprintln(os.Stderr, "vminit:", err)
	}
	unix.Sync()
	return unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
}

func boot() error {
	if err := prepare(); err != nil {
		return err
	}
	p, err := os.StartProcess("/init", []string{"/init", agentArg}, &os.ProcAttr{
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Env:   []string{"PATH=/usr/sbin:/usr/bin"},
	})
	if err != nil {
		return fmt.Errorf("start agent: %w", err)
	}
	// Process 1 inherits every orphan of the guest and must wait for it.
	for {
		pid, err := unix.Wait4(-1, nil, 0, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil || pid == p.Pid {
			return err
		}
	}
}
