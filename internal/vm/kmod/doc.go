// Package kmod says which kernel modules a name stands for, and in which order
// they load.
//
// Debian's kernel packages carry modules but no modules.dep: depmod writes that
// when the package is installed, and the VM rig only unpacks it. So the rig
// reads each module's .modinfo section instead, and writes an Index into the
// guest, where the init program answers the kernel's calls of /sbin/modprobe
// from it.
package kmod
