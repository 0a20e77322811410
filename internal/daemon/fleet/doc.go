// Package fleet decides what every real server should be.
//
// It is a pure function of the configuration, of what the probes, the operators
// and the previous decision say of each server, of the time, and of the servers
// that are leaving: Decide yields each server's weight, presence, state and
// reason. It does no I/O, starts nothing and reads no clock. The weight chain is
//
//	configured → admin override → dynamic factor → slow start → gate → programmed
//
// Decisions are level-triggered: the whole fleet is decided anew each time, so
// there is no edge to miss. What depends on the past, such as a quorum with
// hysteresis or the progress of a slow start, is in the Memory that one decision
// hands to the next; Alerts are what differs between the two.
//
// Policies of a service come in this order: who is disabled is out; while the
// quorum is lost and a backup server can take connections, the backup servers
// replace the others; else fail_open_below may let failed servers in; who has
// failed is out.
package fleet
