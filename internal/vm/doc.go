// Package vm runs programs as root on a real Debian kernel in a virtual
// machine, on hosts whose own kernel lacks IPVS.
//
// It takes Debian's kernel package from the host's apt sources (unpacked in a
// cache folder, never installed), writes an initial file system with our init
// program, the wanted programs and the libraries they need, boots it in QEMU
// and streams back what the programs write. There is no disk, no shell and no
// network in the guest; an empty run takes a few seconds under emulation.
//
// It is a test rig: command vmrun is its front end, docs/TESTING.md tells how
// to use it. It needs qemu-system-x86_64, apt and dpkg-deb on the host, and no
// privileges.
package vm
