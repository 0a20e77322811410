// Package wire is what the VM rig's runner and the guest's init program say to
// each other: a Job goes in with the initial file system, and frames come out
// over one virtio-serial port.
//
// One stream carries everything, so that what a program wrote to its standard
// output and error stays in order, and a guest that dies is seen as a stream
// that ends without a result.
package wire
