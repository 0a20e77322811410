// Package filetest helps tests of what reads files that may never come, and of what
// may leave files open. It imports nothing of lbd's, so that any package's own tests
// can use it.
package filetest
