// Package reconcile makes an engine's table what it should be.
//
// Diff is pure: desired and actual in, the operations in between out. What is
// right is adopted, what differs is edited in place, what is missing is added,
// and only what lbd owns and no longer wants is deleted. A Reconciler runs Diff
// against a live table, in rounds, because others may change the table at the
// same moment and any operation may fail.
//
// The table is always read, never guessed: a pass ends in the state that was
// asked for or in an error that says what is missing. Only the weight of a failed
// server does not wait for that. A pass over a table that is already right writes
// nothing.
package reconcile
