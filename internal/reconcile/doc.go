// Package reconcile makes an engine's table what it should be: a pure Diff of
// desired against actual, and an Apply of the operations in between.
package reconcile
