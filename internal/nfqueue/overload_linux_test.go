package nfqueue

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/internal/netnstest"
)

func markAll(p *Packet) Verdict { return Verdict{Accept: true, SetMark: true, Mark: p.Mark | 0x100} }

// testFull fills a queue that nobody reads: what does not fit is dropped and
// counted, the rest is answered when the reader comes.
func testFull(t *testing.T, ns *netnstest.NS, r rule) {
	const room, packets = 4, 20
	u := newUDP(t, ns, "127.0.0.1", 1)
	q := open(t, ns, Config{MaxLen: room})
	r.add(t)
	for i := range byte(packets) {
		u.write([]byte{i})
	}
	waitQueued(t, ns, room, packets-room)
	run(t, q, markAll)
	for i := range byte(room) {
		if b, mark := u.read(); b[0] != i || mark != 0x101 {
			t.Errorf("want packet %d with mark 0x101, got %d with %#x", i, b[0], mark)
		}
	}
	u.write([]byte{packets})
	if b, _ := u.read(); b[0] != packets {
		t.Errorf("want packet %d, got %d", packets, b[0])
	}
}

// testFailOpen does the same with FailOpen: nothing is lost, what did not fit has
// no mark.
func testFailOpen(t *testing.T, ns *netnstest.NS, r rule) {
	const room, packets = 4, 20
	u := newUDP(t, ns, "127.0.0.1", 1)
	q := open(t, ns, Config{MaxLen: room, FailOpen: true})
	r.add(t)
	for i := range byte(packets) {
		u.write([]byte{i})
	}
	for i := range byte(packets - room) {
		if b, mark := u.read(); b[0] != i+room || mark != 1 {
			t.Errorf("want packet %d with mark 1, got %d with %#x", i+room, b[0], mark)
		}
	}
	run(t, q, markAll)
	for i := range byte(room) {
		if b, mark := u.read(); b[0] != i || mark != 0x101 {
			t.Errorf("want packet %d with mark 0x101, got %d with %#x", i, b[0], mark)
		}
	}
}

// testOwnerKilled kills the program that holds a queue: its packets pass by with
// the bypass flag, and the next program can bind at once.
func testOwnerKilled(t *testing.T, ns *netnstest.NS, r rule) {
	r.bypass = true
	u := newUDP(t, ns, "127.0.0.1", 1)
	owner := startOwner(t, ns)
	r.add(t)
	expectMark(t, u, 0x101)
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	owner.Wait()
	expectMark(t, u, 1)
	q := open(t, ns, Config{})
	run(t, q, markAll)
	expectMark(t, u, 0x101)
}

// testOwnerStopped stops the program that holds a queue, as a suspended machine
// stops all: packets wait, and are answered when it goes on.
func testOwnerStopped(t *testing.T, ns *netnstest.NS, r rule) {
	const packets = 10
	u := newUDP(t, ns, "127.0.0.1", 1)
	owner := startOwner(t, ns)
	r.add(t)
	expectMark(t, u, 0x101)
	if err := owner.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(owner.Process.Pid, &status, unix.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("owner did not stop: %v, %v", status, err)
	}
	for range packets {
		u.write([]byte("x"))
	}
	waitQueued(t, ns, packets, 0)
	if err := owner.Process.Signal(unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for range packets {
		if _, mark := u.read(); mark != 0x101 {
			t.Errorf("want mark 0x101, got %#x", mark)
		}
	}
}

// waitQueued waits until so many packets wait, and so many were dropped. A busy
// kernel hands over later what was sent.
func waitQueued(t *testing.T, ns *netnstest.NS, waiting, dropped uint64) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d packets that wait, %d dropped", waiting, dropped), func() bool {
		k := kernelQueue(t, ns)
		return k.Waiting == waiting && k.Dropped == dropped
	})
}

func expectMark(t *testing.T, u *udp, want uint32) {
	t.Helper()
	u.write([]byte("x"))
	if _, mark := u.read(); mark != want {
		t.Errorf("want mark %#x, got %#x", want, mark)
	}
}

// ownerEnv makes a test binary the owner of a queue of its network namespace.
const ownerEnv = "NFQUEUE_TEST_OWNER"

func TestMain(m *testing.M) {
	if os.Getenv(ownerEnv) == "" {
		os.Exit(m.Run())
	}
	q, err := Open(Config{Number: testQueue, NetNS: -1})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("bound")
	fmt.Println(q.Run(context.Background(), Each(markAll), func() bool { return false }))
	os.Exit(1)
}

// startOwner starts a process that binds the queue and marks all packets.
func startOwner(t *testing.T, ns *netnstest.NS) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), ownerEnv+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := ns.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "bound\n" {
		t.Fatalf("owner said %q, %v", line, err)
	}
	return cmd
}
