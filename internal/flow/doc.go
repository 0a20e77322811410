// Package flow names a flow of packets: the tuple that netfilter's connection
// tracking and the userspace engine both know it by.
package flow
