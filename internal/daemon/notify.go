package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
)

// notifier tells the service manager what lbd does, by the protocol of
// sd_notify(3). Without a service manager it does nothing. It is safe for
// concurrent use. A service manager that does not listen is no reason to fail or
// to wait: errors are logged.
type notifier struct {
	log *slog.Logger
	// send sends one message.
	send func(state string) error

	mu sync.Mutex
	// status is the last STATUS= sent.
	status string
}

func newNotifier(log *slog.Logger) *notifier {
	return &notifier{log: log, send: func(state string) error { return send(state, sendTimeout) }}
}

// sendTimeout bounds the wait for a service manager that does not read: the owner
// of the table is among those who tell it something.
const sendTimeout = 100 * time.Millisecond

// send sends a message to the socket in the environment, and waits for a while if
// there is no room. SdNotify of the library waits without a bound.
func send(state string, timeout time.Duration) error {
	name := os.Getenv("NOTIFY_SOCKET")
	if name == "" {
		return nil
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer c.Close()
	// The first try knows no deadline: where a busy host stops lbd just before,
	// Write would not try at all, and a READY that is lost is the end of lbd.
	if err := sendNow(c, state); !errors.Is(err, unix.EAGAIN) {
		return err
	}
	if err := c.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	_, err = c.Write([]byte(state))
	return err
}

// sendNow sends a message if there is room for it; EAGAIN says that there is
// none.
func sendNow(c *net.UnixConn, state string) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	cerr := raw.Control(func(fd uintptr) { _, err = unix.Write(int(fd), []byte(state)) })
	return errors.Join(cerr, os.NewSyscallError("write", err))
}

func (n *notifier) tell(assignments ...string) {
	for i, a := range assignments {
		// A text must not smuggle in another assignment.
		assignments[i] = strings.ReplaceAll(a, "\n", " ")
	}
	if err := n.send(strings.Join(assignments, "\n")); err != nil {
		n.log.Warn("service manager not told", "err", err)
	}
}

func (n *notifier) ready()    { n.tell(daemon.SdNotifyReady) }
func (n *notifier) stopping() { n.tell(daemon.SdNotifyStopping) }
func (n *notifier) watchdog() { n.tell(daemon.SdNotifyWatchdog) }

// reloading says that a reload begins; ready ends it. systemd tells a reload's
// READY from an earlier one by the monotonic time of the RELOADING.
func (n *notifier) reloading() {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		n.log.Warn("monotonic clock not read", "err", err)
		return
	}
	n.tell(daemon.SdNotifyReloading, fmt.Sprintf("MONOTONIC_USEC=%d", time.Duration(ts.Nano()).Microseconds()))
}

// say sends a status text, unless it was the last one sent.
func (n *notifier) say(status string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if status != n.status {
		n.status = status
		n.tell("STATUS=" + status)
	}
}
