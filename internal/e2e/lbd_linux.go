package e2e

import (
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
	// Args are further arguments of its command line.
	Args []string
	// NS is the namespace of the next start.
	NS *netnstest.NS
	// Engine is the one of its configuration, Socket its control socket there,
	// and Holds the namespace that has the table.
	Engine Engine
	Socket string
	Holds  *netnstest.NS

	log netnstest.Output
	// mu guards what a start or an end changes while others look.
	mu   sync.Mutex
	kept kept
	cmd  *exec.Cmd
	// ended is closed when the process has ended, with exitErr set.
	ended   chan struct{}
	exitErr error
	// said gets what lbd tells the service manager: ready or reloading.
	said chan string
}

// NewLBD returns an LBD that is not started. It ends with the test at the
// latest.
func NewLBD(t netnstest.TB, ns *netnstest.NS, bin, config, dir string) *LBD {
	d := &LBD{Bin: bin, Config: config, Dir: dir, NS: ns, Holds: ns, Socket: filepath.Join(dir, "lbd.sock")}
	t.Cleanup(d.Kill)
	return d
}

// RunDir is lbd's memory.
func (d *LBD) RunDir() string { return filepath.Join(d.Dir, "run") }

// Log returns everything that lbd has written so far.
func (d *LBD) Log() string { return d.log.String() }

// Running says whether the process lives.
func (d *LBD) Running() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
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
	cmd := d.Command(append([]string{"--config", d.Config}, d.Args...)...)
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+notify.LocalAddr().String())
	cmd.Stdout, cmd.Stderr = &d.log, &d.log
	if err := d.NS.Start(cmd); err != nil {
		notify.Close()
		return fmt.Errorf("start lbd: %w", err)
	}
	d.mu.Lock()
	d.cmd, d.ended, d.said = cmd, make(chan struct{}), make(chan string, 64)
	d.mu.Unlock()
	go func() {
		d.exitErr = cmd.Wait()
		notify.Close()
		close(d.ended)
	}()
	go readNotify(notify, d.said)
	if err := d.wait(saidReady); err != nil {
		d.Kill()
		return err
	}
	return nil
}

// Command returns a command that runs the lbd program with the run directory.
func (d *LBD) Command(args ...string) *exec.Cmd {
	return exec.Command(d.Bin, append([]string{"--run-dir", d.RunDir()}, args...)...)
}

// The assignments of sd_notify(3) that matter here.
const (
	saidReady     = "READY=1"
	saidReloading = "RELOADING=1"
)

// wait waits until lbd says something.
func (d *LBD) wait(what string) error {
	timeout := time.After(startTimeout)
	for {
		select {
		case got := <-d.said:
			if got == what {
				return nil
			}
		case <-d.ended:
			return fmt.Errorf("lbd ended: %v\n%s", d.exitErr, d.Log())
		case <-timeout:
			return fmt.Errorf("lbd has not said %s after %v\n%s", what, startTimeout, d.Log())
		}
	}
}

// Reload sends SIGHUP and waits for the end of the reload, good or bad.
func (d *LBD) Reload() error {
	for len(d.said) > 0 {
		<-d.said
	}
	if err := d.Signal(syscall.SIGHUP); err != nil {
		return err
	}
	// A READY that is still to come from an earlier reload does not count.
	if err := d.wait(saidReloading); err != nil {
		return err
	}
	return d.wait(saidReady)
}

// Signal sends a signal.
func (d *LBD) Signal(sig os.Signal) error {
	if !d.Running() {
		return errors.New("lbd does not run")
	}
	return d.cmd.Process.Signal(sig)
}

// PID returns the number of the process, 0 when it does not run.
func (d *LBD) PID() int {
	if !d.Running() {
		return 0
	}
	return d.cmd.Process.Pid
}

// Kill ends lbd with SIGKILL, if it runs, and waits for its end.
func (d *LBD) Kill() {
	if d.Running() {
		d.keep()
		d.cmd.Process.Kill()
		<-d.ended
	}
}

// Stop asks lbd to end and returns an error unless it did so with status 0.
func (d *LBD) Stop() error {
	d.keep()
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

// readNotify passes on what lbd says, until the socket is closed.
func readNotify(c *net.UnixConn, said chan<- string) {
	b := make([]byte, 4096)
	for {
		n, err := c.Read(b)
		if err != nil {
			return
		}
		for line := range strings.Lines(string(b[:n])) {
			if line = strings.TrimSpace(line); line == saidReady || line == saidReloading {
				select {
				case said <- line:
				default: // nobody has asked for long
				}
			}
		}
	}
}

// Programs finds lbd and ipvsctl: in the folder that LBD_BIN names, beside the
// running program, or built from the module's source into dir.
func Programs(ctx context.Context, dir string) (lbd, ipvsctl string, err error) {
	exe, err := os.Executable()
	if err != nil {
		return "", "", err
	}
	if bin := os.Getenv("LBD_BIN"); bin != "" {
		return programsIn(bin)
	}
	if lbd, ipvsctl, err = programsIn(filepath.Dir(exe)); err == nil {
		return lbd, ipvsctl, nil
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-o", dir+"/",
		"github.com/lbd-project/lbd/cmd/lbd", "github.com/lbd-project/lbd/cmd/ipvsctl")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, errBuild := cmd.CombinedOutput(); errBuild != nil {
		return "", "", fmt.Errorf("find lbd and ipvsctl: LBD_BIN is not set; %w; go build: %w\n%s", err, errBuild, out)
	}
	return programsIn(dir)
}

func programsIn(dir string) (lbd, ipvsctl string, err error) {
	lbd, ipvsctl = filepath.Join(dir, "lbd"), filepath.Join(dir, "ipvsctl")
	for _, p := range []string{lbd, ipvsctl} {
		if _, err := os.Stat(p); err != nil {
			return "", "", err
		}
	}
	return lbd, ipvsctl, nil
}
