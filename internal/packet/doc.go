// Package packet reads from the bytes of a packet what a balancer decides by. It
// is the only door to gopacket.
package packet
