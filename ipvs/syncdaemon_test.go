package ipvs

import (
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestStopSyncDaemon stops one whose thread the kernel had not run yet, which it
// does not answer, and others.
func TestStopSyncDaemon(t *testing.T) {
	const silent = syscall.EINTR // netlink_rcv_skb
	for _, tt := range []struct {
		name  string
		errno syscall.Errno
		want  error
	}{
		{"runs", 0, nil},
		{"has not run", silent, nil},
		{"is not there", syscall.ESRCH, ErrSyncDaemonNotRunning},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k, c := newFakeKernel(t, func(k *fakeKernel, sent []byte) {
					var m message
					for len(sent) > 0 {
						var err error
						if sent, err = m.parse(sent); err != nil {
							t.Fatal(err)
						}
						errno := tt.errno
						if m.typ != fakeFamily {
							errno = 0
						}
						if errno != silent && (errno != 0 || m.flags&flagAck != 0) {
							k.reply(errorMessage(m.seq, errno))
						}
					}
				})
				start := time.Now()
				for range 2 {
					if err := c.StopSyncDaemon(t.Context(), SyncBackup); !errors.Is(err, tt.want) {
						t.Errorf("want %v, got %v", tt.want, err)
					}
				}
				if took := time.Since(start); took != 0 {
					t.Errorf("waited %v", took)
				}
				if k.closes != 0 {
					t.Errorf("%d sockets were given up", k.closes)
				}
			})
		})
	}
}
