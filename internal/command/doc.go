// Package command runs a program of the operator's for a bounded time: a check
// script, a command of a quorum, a notification hook.
//
//	c, err := command.New(command.Spec{Args: []string{"/usr/local/bin/probe", "-q"}, User: "nobody"})
//	…
//	r, err := c.Run(ctx, "LBD_ADDRESS=10.0.0.2")
//
// The program is given by a list of arguments and never passes through a shell.
// What it finds does not depend on how lbd was started:
//
//   - an environment of PATH, LANG and what the caller gives;
//   - / as its directory and 022 as its umask;
//   - a session and process group of its own, without a terminal;
//   - /dev/null as standard input, and a pipe as standard output and error, of
//     which the first 4096 bytes are kept and the rest is read and dropped;
//   - no other descriptor, not even one that lbd itself was started with;
//   - the user and groups that the Spec names; otherwise lbd's own, with lbd's
//     capabilities;
//   - lbd's limits, but for RLIMIT_NOFILE.
//
// Go 1.26 raises the soft RLIMIT_NOFILE to the hard one as the program starts,
// and os.StartProcess sets the old one in a child between fork and exec
// (origRlimitNofile in syscall/rlimit.go; a test here proves it for this
// toolchain). It stops doing so once the process has called Setrlimit for
// RLIMIT_NOFILE, because then the limit counts as wanted, and once somebody else
// has changed the limit by prlimit(2). So lbd must not set that limit itself: a
// shell that closes every possible descriptor would take seconds.
//
// When the context ends, the process group gets SIGTERM, and SIGKILL 250 ms
// later; Run returns 650 ms after the end of the context at the latest, but
// about at once for a program that heeds SIGTERM. With Spec.Whole the deadline of
// the context is that of SIGKILL, and SIGTERM comes a little earlier: only a
// program that SIGKILL does not end, or whose output others hold open, makes Run
// return later, by 400 ms at most. When the program has ended,
// for whatever reason, the rest of its group is killed. What has left the group
// survives: a daemon that called setsid(2) or setpgid(2). It holds up nothing:
// 100 ms after the program's end its output is no longer waited for, and it gets
// SIGPIPE if it writes on. Orphans are the init process's to reap; where lbd
// runs as process 1 of a container, the container needs an init.
//
// A program is read before it is started, as far as its own file and, of a script,
// the files of its interpreters go: on a file system that does not answer the
// start would stop all of Go. What is not read is the dynamic linker that an ELF
// program names (PT_INTERP), which the kernel opens as well before the child has
// become the program: one on such a file system stops lbd. Between the read and
// the start there is less than a millisecond in which it can still go wrong; no
// other way is known but a process that does nothing but fork.
//
// The package needs Linux 5.11 (close_range with CLOSE_RANGE_CLOEXEC; pidfd is
// 5.4). Another user takes CAP_SETUID and CAP_SETGID; ending that user's program
// takes CAP_KILL.
package command
