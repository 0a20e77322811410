// Package memory keeps what lbd must know after a restart in the same boot.
//
// The engine's table outlives lbd, and so do addresses and sysctls that lbd set.
// What is written here says which of them are lbd's, which real servers were
// down, and what is still draining. It lives in /run, which a reboot clears
// together with the table, and is tied to the boot by its ID as well.
//
// Times are kept as durations and aged by the clock that runs through suspend,
// so a wall clock that jumps changes nothing. Reading is tolerant: what cannot be
// understood is dropped with a warning and takes nothing else along, because
// half a memory is better than none. Writing is atomic.
//
// A Store needs to be root's in practice: the directory must belong to the
// process's user and be writable by nobody else.
package memory
