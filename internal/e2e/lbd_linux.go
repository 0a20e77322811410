package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/lbd-project/lbd/internal/netnstest"
)

// startTimeout bounds the start and the stop of lbd.
const startTimeout = 30 * time.Second

// LBD is an lbd process in a namespace. It can be started again after it ended;
// its files stay.
type LBD struct {
	// Bin is the path of the lbd program.
	Bin string
	// Config is the path of its configuration.
	Config string
	// Dir is where its run directory is.
	Dir string

	ns  *netnstest.NS
	log logBuffer
	cmd *exec.Cmd
	// ended is closed when the process has ended, with exitErr set.
	ended   chan struct{}
	exitErr error
	ready   chan struct{}
}

// NewLBD returns an LBD that is not started. It ends with the test at the
// latest.
func NewLBD(t netnstest.TB, ns *netnstest.NS, bin, config, dir string) *LBD {
	d := &LBD{Bin: bin, Config: config, Dir: dir, ns: ns}
	t.Cleanup(d.Kill)
	return d
}

// RunDir is lbd's memory.
func (d *LBD) RunDir() string { return filepath.Join(d.Dir, "run") }

// Log returns everything that lbd has written so far.
func (d *LBD) Log() string { return d.log.String() }

// Running says whether the process lives.
func (d *LBD) Running() bool {
	if d.cmd == nil {
		return false
	}
	select {
	case <-d.ended:
		return false
	default:
		return true
	}
}

// Start starts lbd and returns when it has said that it is ready.
func (d *LBD) Start() error {
	if d.Running() {
		return errors.New("lbd runs already")
	}
	notify, err := d.listenNotify()
	if err != nil {
		return err
	}
	cmd := d.Command("--config", d.Config)
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+notify.LocalAddr().String())
	cmd.Stdout, cmd.Stderr = &d.log, &d.log
	if err := d.ns.Start(cmd); err != nil {
		notify.Close()
		return fmt.Errorf("start lbd: %w", err)
	}
	d.cmd, d.ended, d.ready = cmd, make(chan struct{}), make(chan struct{}, 1)
	go func() {
		d.exitErr = cmd.Wait()
		notify.Close()
		close(d.ended)
	}()
	go d.readNotify(notify, d.ready)
	if err := d.WaitReady(); err != nil {
		d.Kill()
		return err
	}
	return nil
}

// Command returns a command that runs the lbd program with the run directory.
func (d *LBD) Command(args ...string) *exec.Cmd {
	return exec.Command(d.Bin, append([]string{"--run-dir", d.RunDir()}, args...)...)
}

// WaitReady waits for the next READY=1 of lbd: that of its start, or the one at
// the end of a reload.
func (d *LBD) WaitReady() error {
	select {
	case <-d.ready:
		return nil
	case <-d.ended:
		return fmt.Errorf("lbd ended: %v\n%s", d.exitErr, d.Log())
	case <-time.After(startTimeout):
		return fmt.Errorf("lbd is not ready after %v\n%s", startTimeout, d.Log())
	}
}

// Signal sends a signal.
func (d *LBD) Signal(sig os.Signal) error {
	if !d.Running() {
		return errors.New("lbd does not run")
	}
	return d.cmd.Process.Signal(sig)
}

// Kill ends lbd with SIGKILL, if it runs, and waits for its end.
func (d *LBD) Kill() {
	if d.Running() {
		d.cmd.Process.Kill()
		<-d.ended
	}
}

// Stop asks lbd to end and returns an error unless it did so with status 0.
func (d *LBD) Stop() error {
	if err := d.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-d.ended:
	case <-time.After(startTimeout):
		d.Kill()
		return fmt.Errorf("lbd had to be killed %v after SIGTERM\n%s", startTimeout, d.Log())
	}
	if d.exitErr != nil {
		return fmt.Errorf("lbd ended: %w\n%s", d.exitErr, d.Log())
	}
	return nil
}

// listenNotify opens a socket for the messages of sd_notify.
func (d *LBD) listenNotify() (*net.UnixConn, error) {
	path := filepath.Join(d.Dir, "notify")
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
}

func (d *LBD) readNotify(c *net.UnixConn, ready chan<- struct{}) {
	b := make([]byte, 4096)
	for {
		n, err := c.Read(b)
		if err != nil {
			return
		}
		for line := range strings.Lines(string(b[:n])) {
			if strings.TrimSpace(line) == "READY=1" {
				select {
				case ready <- struct{}{}:
				default:
				}
			}
		}
	}
}

// logBuffer is a buffer that can be read while a process writes to it.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Programs finds lbd and ipvsctl: in the folder that LBD_BIN names, or built
// from the module's source into dir.
func Programs(ctx context.Context, dir string) (lbd, ipvsctl string, err error) {
	if bin := os.Getenv("LBD_BIN"); bin != "" {
		dir = bin
	} else {
		cmd := exec.CommandContext(ctx, "go", "build", "-o", dir+"/",
			"github.com/lbd-project/lbd/cmd/lbd", "github.com/lbd-project/lbd/cmd/ipvsctl")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", "", fmt.Errorf("build lbd and ipvsctl (LBD_BIN is not set): %w\n%s", err, out)
		}
	}
	lbd, ipvsctl = filepath.Join(dir, "lbd"), filepath.Join(dir, "ipvsctl")
	for _, p := range []string{lbd, ipvsctl} {
		if _, err := os.Stat(p); err != nil {
			return "", "", err
		}
	}
	return lbd, ipvsctl, nil
}
