// Package bench holds what the benchmarks share: how they begin and end, the
// samples of contenders that take turns, ratios with their bars, and how both are
// printed.
//
// The benchmarks are the commands below this folder; "make help" lists them.
// Their last lines are "RESULT name value", and their exit status is 1 when a
// figure misses its bar.
package bench
