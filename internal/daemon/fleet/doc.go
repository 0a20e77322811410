// Package fleet decides what every real server should be.
//
// It is a pure function of the configuration, of what the probes and the
// previous decision say of each server, and of the servers that are leaving:
// Decide yields each server's weight, presence, state and reason. It does no
// I/O, starts nothing and reads no clock. The weight chain is
//
//	configured → admin override → dynamic factor → slow start → gate → programmed
//
// of which this version has the first and the last two. Decisions are
// level-triggered: the whole fleet is decided anew each time, so there is no
// edge to miss.
package fleet
