package wire

import "time"

// PortName is the name of the virtio-serial port that carries the frames.
const PortName = "lbd.stream"

// Files of the guest that both sides know.
const (
	// JobFile holds the Job as JSON.
	JobFile = "/job.json"
	// IndexFile holds the module index (package kmod).
	IndexFile = "/lib/modules/index"
	// OutDir is where a program leaves files that shall come back.
	OutDir = "/out"
)

// Job is what the guest shall do.
type Job struct {
	// Commands run one after the other, also after one failed.
	Commands []Command
	// Preload are modules to load before each command.
	Preload []string
	// Out asks for the files of OutDir.
	Out bool
	// Log asks for the whole kernel log, not only its alarming lines.
	Log bool
}

// Command is one program to run in the guest.
type Command struct {
	// Path is the program's file in the guest.
	Path string
	// Args follow the program's name.
	Args []string
	// Env is the whole environment, as NAME=VALUE.
	Env []string
	// Dir is the working folder.
	Dir string
	// Timeout is how long it may run. Zero means no limit.
	Timeout time.Duration
}

// Begin is sent when a command starts.
type Begin struct {
	// Index is the command's place in Job.Commands.
	Index int
}

// Exit is sent when a command has ended.
type Exit struct {
	// Index is the command's place in Job.Commands.
	Index int
	// Status is the exit status; 128 plus the signal's number when a signal
	// ended the program, 127 when it did not start.
	Status int
	// TimedOut says that the guest ended the program.
	TimedOut bool
	// Err says why the program did not start.
	Err string
	// Duration is how long it ran.
	Duration time.Duration
}

// Result is sent last. A stream without one has no result.
type Result struct {
	// Release is the guest kernel's release (uname -r).
	Release string
	// Alarms are the kernel log's lines that tell of a fault in the kernel.
	Alarms []string
}
