package command

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// The environment of every program; Spec.Env may set both anew. Messages in
// the language of the C locale are what scripts of others can parse.
const (
	defaultPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	defaultLang = "LANG=C"
)

// umask of every program.
const umask = 0o022

const (
	// grace is the time from SIGTERM to SIGKILL.
	grace = 250 * time.Millisecond
	// killWait is how long SIGKILL may take.
	killWait = 300 * time.Millisecond
)

// ErrStuck is in the chain of the error of a program that could not be killed,
// and of each Run until it has ended: one that waits for a dead disk, or one that
// has become another user's.
var ErrStuck = errors.New("cannot be killed")

// ErrStart is in the chain of the error of a program that could not be started.
var ErrStart = errors.New("cannot start")

// ErrUnread is, beside ErrStart, in the chain of the error of a program whose file
// does not come, such as of a network file system without a server.
var ErrUnread = errors.New("its file cannot be read")

// Spec says what to run and how.
type Spec struct {
	// Args are the program, by its absolute path, and its arguments.
	Args []string
	// User is the name or number of the user to run as; empty means lbd's own.
	// The user's supplementary groups come with it. A number that the user
	// database does not have needs a Group and has no other groups.
	User string
	// Group is the name or number of the group that takes the place of the
	// user's first group; empty means that one. It needs a User.
	Group string
	// Env are variables, each "NAME=value", besides PATH and LANG or in their
	// place.
	Env []string
	// Enter calls start, which starts the program, in the network namespace that
	// the program shall run in, and returns its error. Nil means lbd's own.
	Enter func(start func() error) error
	// Whole has a program end by the deadline of its context: SIGKILL comes then, and
	// SIGTERM Reserve earlier. Otherwise SIGTERM comes then, and SIGKILL later.
	Whole bool
	// Reads are shared by Commands that may be of the same program: while its file
	// cannot be read, all of them take one thread. Nil is for one that is kept.
	Reads *Reads
}

// Command is a Spec that has been checked. Its methods are safe for concurrent
// use.
type Command struct {
	spec    Spec
	account *account
	// stuck counts programs that outlived their SIGKILL.
	stuck atomic.Int32
	// unread is the last read of the program's file that outlived a Run.
	unread atomic.Pointer[read]
	// mask is set where lbd's umask is not the program's.
	mask bool
	// kill sends a signal to a process group, grace and killWait are the constants;
	// tests replace them.
	kill            func(group int, signal syscall.Signal) error
	grace, killWait time.Duration
}

// Result is what a program left that ended by itself.
type Result struct {
	// Code is the exit status, 0 to 255; 0 beside an error.
	Code int
	// Output is the beginning of what the program wrote to standard output and
	// standard error, at most 4096 bytes. It is there beside an error, too.
	Output []byte
}

// New checks a Spec and looks up its user and group. It does not look for the
// program, which may come later.
func New(s Spec) (*Command, error) {
	if len(s.Args) == 0 || s.Args[0] == "" {
		return nil, errors.New("command without a program")
	}
	if !filepath.IsAbs(s.Args[0]) {
		return nil, fmt.Errorf("program %q: not an absolute path", s.Args[0])
	}
	for _, a := range s.Args {
		if strings.ContainsRune(a, 0) {
			return nil, fmt.Errorf("argument %q: has a zero byte", a)
		}
	}
	if err := checkEnv(s.Env); err != nil {
		return nil, err
	}
	if err := supported(); err != nil {
		return nil, fmt.Errorf("run %s: %w", s.Args[0], err)
	}
	a, err := lookup(s.User, s.Group)
	if err != nil {
		return nil, err
	}
	if s.Reads == nil {
		s.Reads = NewReads()
	}
	s.Args, s.Env = slices.Clone(s.Args), slices.Concat([]string{defaultPath, defaultLang}, s.Env)
	return &Command{spec: s, account: a, mask: currentUmask() != umask, kill: signalGroup, grace: grace, killWait: killWait}, nil
}

// Reserve returns how long before its deadline a program that has that much time
// gets SIGTERM, with Spec.Whole: a tenth of it, 250 ms at most.
func Reserve(left time.Duration) time.Duration { return max(0, min(left/10, grace)) }

// checkEnv says which variable is none. The value may be a secret.
func checkEnv(env []string) error {
	for _, v := range env {
		name, _, ok := strings.Cut(v, "=")
		if !ok || name == "" || strings.ContainsRune(name, 0) {
			return fmt.Errorf("environment variable %q: not of the form NAME=value", name)
		}
		if strings.ContainsRune(v, 0) {
			return fmt.Errorf("environment variable %s: has a zero byte", name)
		}
	}
	return nil
}

// Run runs the program with further variables, and returns once it has ended. A
// nil error means that it ended by itself, with any exit status. Otherwise it
// was not started, or a signal ended it: one that Run sent because ctx was done,
// which has the error of ctx in the chain, or another. It counts as killed when
// ctx was done first, whatever exit status it made of SIGTERM.
//
// See the package for what of the program may survive. A program that SIGKILL
// does not end is waited for in the background; until it has ended, Run returns
// ErrStuck and starts no other. So it is, with ErrStart, where the file of the
// program cannot be read in time, as of a network file system without a server.
func (c *Command) Run(ctx context.Context, env ...string) (Result, error) {
	name := c.spec.Args[0]
	if err := checkEnv(env); err != nil {
		return Result{}, fmt.Errorf("run %s: %w", name, err)
	}
	if c.stuck.Load() > 0 {
		return Result{}, fmt.Errorf("run %s: the last one still runs: %w", name, ErrStuck)
	}
	if err := ctx.Err(); err != nil {
		return Result{}, fmt.Errorf("run %s: %w", name, err)
	}
	r, err := c.run(ctx, slices.Concat(c.spec.Env, env))
	if err != nil {
		err = fmt.Errorf("run %s: %w", name, err)
	}
	return r, err
}

// Succeed is Run for a program that has to end with status 0: any other is an
// error, beside which Result is as without.
func (c *Command) Succeed(ctx context.Context, env ...string) (Result, error) {
	r, err := c.Run(ctx, env...)
	if err == nil && r.Code != 0 {
		err = fmt.Errorf("run %s: exit status %d", c.spec.Args[0], r.Code)
	}
	return r, err
}
