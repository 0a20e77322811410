// Package daemon runs lbd: it wires the configuration, the checks, the table and
// the control API together.
//
// One goroutine, the owner, holds the desired state. Checks, the mirror of the
// counts, reloads and the control API send it messages, or read the immutable
// view that it publishes after each pass. A pass is level-triggered: it decides
// about the whole fleet (package fleet), writes down what must outlive a crash,
// and only then makes the host and the table follow. Nothing is flushed at
// start, and what lbd does not own is left alone.
//
// It is the only package that starts goroutines which live as long as the
// process. Linux only; needs CAP_NET_ADMIN, and CAP_SYS_ADMIN for another
// network namespace.
package daemon
