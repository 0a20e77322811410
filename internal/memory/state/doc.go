// Package state keeps what operators said of real servers over restarts and
// reboots: lbd's state_file.
//
// The file is JSON. Reading is tolerant, field by field: what cannot be
// understood is ignored with a warning and takes nothing else along, and a file
// that is none of lbd's is set aside, never overwritten. Writing is atomic. Times
// that decide something are kept as durations and aged by the clock that runs
// through suspend; only from one boot to the next the wall clock says how old the
// file is.
package state
