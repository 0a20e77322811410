package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strconv"
	"time"
)

// Kind is what the client does with its connections.
type Kind string

// The kinds of load.
const (
	Requests Kind = "requests"
	Down     Kind = "down"
	Up       Kind = "up"
)

// Load is what the client shall do.
type Load struct {
	Kind Kind
	// Connections are open at once, shared by Threads.
	Connections, Threads int
	// Count is how many requests to make; 0: as many as fit into Time.
	Count int
	// WarmUp comes before Time and is not measured. With Count, Time is only
	// roughly how long it should take.
	WarmUp, Time time.Duration
	// Sources and Ports are the numbers of source addresses and of ports of each.
	// All combinations are used in turn.
	Sources, Ports int
	// To is the destination.
	To netip.AddrPort
}

// firstPort is the first source port.
const firstPort = 10000

func (l Load) args() []string {
	seconds := func(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) }
	return []string{
		"-c", strconv.Itoa(l.Connections), "-j", strconv.Itoa(l.Threads), "-n", strconv.Itoa(l.Count),
		"-w", seconds(l.WarmUp), "-t", seconds(l.Time),
		"-a", strconv.Itoa(l.Sources), "-l", strconv.Itoa(firstPort), "-h", strconv.Itoa(firstPort + l.Ports - 1),
		string(l.Kind), sourceFirst, l.To.String(),
	}
}

// loadMargin is how much longer than planned the client may take; it ends
// itself before.
const loadMargin = time.Minute

// Run runs the client and returns what it measured. Failed requests are an
// error: what fails fast must not look fast.
func (r *Rig) Run(ctx context.Context, l Load) (*Outcome, error) {
	o, err := r.run(ctx, l)
	for _, p := range r.serving {
		err = errors.Join(err, p.alive())
	}
	return o, err
}

func (r *Rig) run(ctx context.Context, l Load) (*Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, l.WarmUp+l.Time+loadMargin)
	defer cancel()
	cmd := exec.CommandContext(ctx, r.programs.Client, l.args()...)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	line, err := r.Client.Run(cmd)
	if err != nil {
		return nil, fmt.Errorf("client %s %v: %w\n%s", l.Kind, l.To, err, &complaints)
	}
	o, err := parseOutcome(line)
	if err != nil {
		return nil, err
	}
	if o.Failed > 0 {
		return o, fmt.Errorf("client %s %v: %d failed, %d did not\n%s", l.Kind, l.To, o.Failed, o.Done, &complaints)
	}
	return o, nil
}
