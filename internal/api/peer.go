package api

import (
	"context"
	"fmt"
	"os"
	"slices"
)

// Peer is the process at the other end of a connection, as it was when it
// connected.
type Peer struct {
	PID      int
	UID, GID int
	// Groups are the supplementary groups.
	Groups []int
}

// String prints "uid 1000, pid 4711".
func (p Peer) String() string { return fmt.Sprintf("uid %d, pid %d", p.UID, p.PID) }

// AllowGroup returns a rule for Options.Allow: root, the user that the server
// runs as, and members of the group. The mode of the socket says the same; this
// holds even after somebody has changed it.
func AllowGroup(gid int) func(Peer) bool {
	self := os.Geteuid()
	return func(p Peer) bool {
		return p.UID == 0 || p.UID == self || p.GID == gid || slices.Contains(p.Groups, gid)
	}
}

// peerKey is the context key of a connection's Peer.
type peerKey struct{}

func peerFrom(ctx context.Context) (Peer, bool) {
	p, ok := ctx.Value(peerKey{}).(Peer)
	return p, ok
}
