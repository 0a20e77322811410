package main

import (
	"archive/tar"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/lbd-project/lbd/internal/vm/wire"
	"golang.org/x/sys/unix"
)

// agentArg is the argument that makes vminit the agent.
const agentArg = "agent"

// agent does the job and sends the result.
func agent() error {
	p, err := openPort(wire.PortName)
	if err != nil {
		return err
	}
	w := wire.NewWriter(p)
	if err := w.Write(wire.TypeHello, nil); err != nil {
		return err
	}
	text, err := os.ReadFile(wire.JobFile)
	if err != nil {
		return err
	}
	var job wire.Job
	if err := json.Unmarshal(text, &job); err != nil {
		return fmt.Errorf("read job: %w", err)
	}
	k, err := openKernelLog()
	if err != nil {
		return err
	}
	go k.follow()
	for i, c := range job.Commands {
		if err := modprobe(append([]string{"-a"}, job.Preload...)); err != nil {
			return err
		}
		if err := w.WriteJSON(wire.TypeBegin, wire.Begin{Index: i}); err != nil {
			return err
		}
		x := run(c, w.Stream(wire.TypeStdout), w.Stream(wire.TypeStderr))
		x.Index = i
		if err := w.WriteJSON(wire.TypeExit, x); err != nil {
			return err
		}
		// What a command left running must not disturb the next one. Linux
		// spares process 1 and the caller.
		_ = unix.Kill(-1, unix.SIGKILL)
	}
	if job.Out {
		if err := sendFiles(w, wire.OutDir); err != nil {
			return err
		}
	}
	return finish(w, k, job.Log)
}

func finish(w *wire.Writer, k *kernelLog, whole bool) error {
	log, alarms := k.stop()
	if whole {
		if err := w.Write(wire.TypeLog, log); err != nil {
			return err
		}
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return err
	}
	return w.WriteJSON(wire.TypeResult, wire.Result{
		Release: unix.ByteSliceToString(u.Release[:]),
		Alarms:  alarms,
	})
}

// sendFiles sends dir as a tar archive; an absent dir is an empty archive.
func sendFiles(w *wire.Writer, dir string) error {
	t := tar.NewWriter(w.Stream(wire.TypeFiles))
	if _, err := os.Stat(dir); err == nil {
		if err := t.AddFS(os.DirFS(dir)); err != nil {
			return fmt.Errorf("send files: %w", err)
		}
	}
	return t.Close()
}

// port is a virtio-serial port opened for blocking writes. An os.File would
// make it non-blocking, and the driver then drops what the host is slow to take.
type port struct{ fd int }

// openPort opens the virtio-serial port that the host named name.
func openPort(name string) (*port, error) {
	files, err := filepath.Glob("/sys/class/virtio-ports/*/name")
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil || strings.TrimSpace(string(b)) != name {
			continue
		}
		dev := filepath.Join("/dev", filepath.Base(filepath.Dir(f)))
		fd, err := unix.Open(dev, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("open %s: %w", dev, err)
		}
		return &port{fd}, nil
	}
	return nil, fmt.Errorf("no virtio-serial port named %s among %d", name, len(files))
}

// Write writes all of b.
func (p *port) Write(b []byte) (int, error) {
	for done := 0; done < len(b); {
		n, err := unix.Write(p.fd, b[done:])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return done, fmt.Errorf("write to the host: %w", err)
		}
		done += n
	}
	return len(b), nil
}
