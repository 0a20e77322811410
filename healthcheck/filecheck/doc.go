// Package filecheck takes the weight of a real server from a file.
//
// The file holds one number, with any white space around it: "42" is the weight
// itself, "50%" a part of the configured one, both 0 to 65535. It is read anew by
// each probe. A check whose file cannot be read, or holds anything else, has
// failed and says nothing of the weight.
//
// With a Multiplier it holds what the weight changes by instead: an integer of 32
// bits, which may have a sign, times the Multiplier. That is added, as far as 0
// and 65535; where it comes to -2147483648 or less the check fails, so that the
// file can take the server out as well.
//
// Write the file under another name and rename it: a probe that meets a file
// half written fails, or reads 1 where 10 is meant.
//
// Only regular files of at most 64 bytes are read. Anything else, such as a FIFO
// or a device, is not even opened: that may block, or start a watchdog. Symbolic
// links are followed, because renaming one is a common way to replace a file,
// and because nothing but a number gets from the file into a result or an error:
// a link to a secret gives nothing away.
//
// Reading may take long where the file's disk is slow or a network file system
// has lost its server. No deadline ends that; the Monitor counts such a probe as
// failed for as long as it lasts, and one thread is lost to it, up to the 1000 of
// healthcheck.Env.BeginRead. The package needs Linux with /proc, and leave to read
// the file.
package filecheck
