// Command ipvsctl manages lbd over its control socket.
//
// Data goes to standard output, everything else to standard error. The man page
// and the shell completions in packaging are made from the same commands:
//
//go:generate go test -run ^TestPackaging$ -update .
package main
