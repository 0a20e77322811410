package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// hundredth is the unit of processor time in /proc (USER_HZ).
const hundredth = time.Second / 100

// process is what /proc/PID/stat says.
type process struct {
	parent int
	// cpu is the time of all threads, those that ended and children that ended
	// and were waited for included.
	cpu time.Duration
}

func parseProcess(stat []byte) (p process, err error) {
	// The name of the program may have anything in it but ends with the last
	// parenthesis. Behind it come the state, the parent and 9 numbers, then utime,
	// stime, cutime, cstime.
	end := bytes.LastIndexByte(stat, ')')
	f := strings.Fields(string(stat[end+1:]))
	if end < 0 || len(f) < 15 {
		return p, fmt.Errorf("no times in %q", stat)
	}
	p.parent, err = strconv.Atoi(f[1])
	for _, text := range f[11:15] {
		n, errTime := strconv.ParseInt(text, 10, 64)
		err = errors.Join(err, errTime)
		p.cpu += time.Duration(n) * hundredth
	}
	return p, err
}

// processCPU returns the processor time of one process.
func processCPU(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	p, err := parseProcess(stat)
	return p.cpu, err
}

// familyCPU returns the processor time of a process and all that descend from it.
// proc is /proc.
func familyCPU(proc string, pid int) (time.Duration, error) {
	files, err := filepath.Glob(filepath.Join(proc, "[0-9]*", "stat"))
	if err != nil {
		return 0, err
	}
	all := make(map[int]process, len(files))
	for _, file := range files {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		p, err := parseProcess(stat)
		if err != nil {
			return 0, err
		}
		n, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return 0, err
		}
		all[n] = p
	}
	root, ok := all[pid]
	if !ok {
		return 0, fmt.Errorf("no process %d", pid)
	}
	cpu := root.cpu
	for n := range all {
		// The way up to init, whose parent is 0.
		for up := all[n].parent; up != 0; up = all[up].parent {
			if up == pid {
				cpu += all[n].cpu
				break
			}
		}
	}
	return cpu, nil
}

// parseHost returns the processor time of everybody in /proc/stat: all of the
// first line but idle and iowait, and without guest, which is in user already.
func parseHost(stat []byte) (time.Duration, error) {
	var name string
	var user, nice, system, idle, iowait, irq, softirq, steal int64
	if _, err := fmt.Sscan(string(stat), &name, &user, &nice, &system, &idle, &iowait, &irq, &softirq, &steal); err != nil || name != "cpu" {
		return 0, fmt.Errorf("no processor times in %q", stat[:min(len(stat), 100)])
	}
	return time.Duration(user+nice+system+irq+softirq+steal) * hundredth, nil
}
