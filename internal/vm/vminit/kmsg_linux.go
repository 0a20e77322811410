package main

import (
	"bytes"
	"fmt"
	"regexp"
	"sync"

	"golang.org/x/sys/unix"
)

// alarm matches the kernel log's lines that tell of a fault in the kernel.
// Stall warnings are not among them, since a busy host makes a guest stall, but
// a task that gets nowhere for two minutes is.
var alarm = regexp.MustCompile(`^(WARNING: |BUG: |kernel BUG at |Oops: |general protection fault|KASAN: |UBSAN: |unregister_netdevice: waiting for |INFO: task \S+ blocked for more than )`)

// maxAlarms keeps the result within one frame.
const (
	maxAlarms   = 20
	maxAlarmLen = 200
)

// kernelLog reads /dev/kmsg while the guest runs: the ring buffer is small
// enough for a chatty test to push a warning out.
type kernelLog struct {
	fd     int
	mu     sync.Mutex
	text   bytes.Buffer
	alarms []string
}

func openKernelLog() (*kernelLog, error) {
	fd, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open kernel log: %w", err)
	}
	return &kernelLog{fd: fd}, nil
}

// follow reads for as long as the agent lives.
func (k *kernelLog) follow() {
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(k.fd), Events: unix.POLLIN}}, -1)
		if err != nil && err != unix.EINTR {
			return
		}
		k.drain()
	}
}

// stop reads what is left and returns the whole log and its alarms.
func (k *kernelLog) stop() ([]byte, []string) {
	k.drain()
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.text.Bytes(), k.alarms
}

func (k *kernelLog) drain() {
	k.mu.Lock()
	defer k.mu.Unlock()
	buf := make([]byte, 8192)
	for {
		n, err := unix.Read(k.fd, buf)
		switch {
		case err == unix.EINTR || err == unix.EPIPE:
			// EPIPE: records were overwritten before they were read.
			continue
		case err != nil || n <= 0:
			return
		}
		k.record(buf[:n])
	}
}

// record takes "priority,sequence,time,flags;text" (Documentation/ABI/testing/
// dev-kmsg), one record a read.
func (k *kernelLog) record(b []byte) {
	_, text, _ := bytes.Cut(b, []byte{';'})
	line, _, _ := bytes.Cut(text, []byte{'\n'})
	k.text.Write(line)
	k.text.WriteByte('\n')
	if alarm.Match(line) && len(k.alarms) < maxAlarms {
		k.alarms = append(k.alarms, string(line[:min(len(line), maxAlarmLen)]))
	}
}
