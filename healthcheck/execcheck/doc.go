// Package execcheck probes a real server with a program of the operator's.
//
// The program's exit status is the answer. 0 is healthy and 1 is failed. 2 to 255
// are failed too, unless Check.Dynamic has them mean healthy with the weight of
// the status less 2, so 2 is weight 0 and 255 is weight 253: the meaning that
// keepalived gives them with misc_dynamic. The weight takes the place of the one
// before; nothing is ever added up. A program that a signal ends, be it lbd's own
// at the end of the time, has failed and says nothing of the weight, whatever
// exit status it made of the signal.
//
// The first line that the program writes, to standard output or standard error,
// is shown with the result.
//
// Package internal/command has what the program finds: how it ends with its whole
// process group, and its environment, which is PATH, LANG, the variables of
// Check.Env, and
//
//	LBD_ADDRESS        the address of the real server, 10.0.0.2 or fd00::2
//	LBD_PORT           its port, 0 where it has none
//	LBD_TARGET         both, as in a URL: 10.0.0.2:80 or [fd00::2]:80
//	LBD_CHECK_TIMEOUT  the time that is left to it, in seconds: 1.799
//
// That time ends a tenth, 250 ms at most, before the deadline of the probe. Its
// process group gets SIGTERM then, and SIGKILL at the deadline, so that a program
// that ignores SIGTERM does not lengthen the probe.
//
// The program runs in the network namespace of the probes. It needs Linux, and
// CAP_SETUID, CAP_SETGID and CAP_KILL for another user.
package execcheck
