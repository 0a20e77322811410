// Package vmtest holds the kernel tests of the VM rig itself: that the place
// where kernel tests run is what they count on.
package vmtest
