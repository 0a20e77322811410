package command

import (
	"bytes"
	"context"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// What the kernel reads of a program to find the interpreter of a script, and how
// many interpreters that are scripts it follows (BINPRM_BUF_SIZE of
// include/uapi/linux/binfmts.h, and exec_binprm in fs/exec.c).
const (
	headLen         = 256
	maxInterpreters = 5
)

// reach waits until the kernel has the beginning of the program at hand. Without
// that a program on a file system that does not answer would stop all of Go: the
// thread that forks stands still until the child has become the program, and the
// runtime, which cannot stop that thread, waits for it at the next garbage
// collection.
//
// No deadline ends a read from such a file system. It is left to go on, and until
// it has ended reach returns an error at once. Other Commands wait for the same
// read, as long as they may, and begin no other.
func (c *Command) reach(ctx context.Context) error {
	if !c.unread.Load().over() {
		return fmt.Errorf("%w: %w", ErrStart, ErrUnread)
	}
	path := c.spec.Args[0]
	read := c.spec.Reads.join(path, func() { touch(path, maxInterpreters) })
	select {
	case <-read.done:
		return nil
	case <-ctx.Done():
		c.unread.Store(read)
		return fmt.Errorf("%w: %w: %w", ErrStart, ErrUnread, ctx.Err())
	}
}

// touch reads the beginning of a program, and of the one that interprets it. What
// is wrong with them whoever starts them is told.
func touch(path string, more int) {
	// As in a check of a file, nothing but regular files is opened.
	at, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(at)
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return
	}
	fd, err := unix.Open("/proc/self/fd/"+strconv.Itoa(at), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	head := make([]byte, headLen)
	n, err := unix.Pread(fd, head, 0)
	if err != nil || more == 0 {
		return
	}
	if line, ok := bytes.CutPrefix(head[:n], []byte("#!")); ok {
		line, _, _ = bytes.Cut(line, []byte("\n"))
		if words := bytes.Fields(line); len(words) > 0 {
			touch(string(words[0]), more-1)
		}
	}
}
