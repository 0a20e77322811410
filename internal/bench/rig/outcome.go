package rig

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Outcome is what the client measured.
type Outcome struct {
	// Done and Failed count requests. Failed is also the number of connections
	// that broke in a bulk transfer.
	Done, Failed uint64
	// Bytes are those of the answers, or of the bulk transfer.
	Bytes uint64
	// Elapsed is the measured time. Busy is how long the processors of the machine
	// were busy in it, together.
	Elapsed, Busy time.Duration
	// P50 and P95 are quantiles of the time of a request.
	P50, P95 time.Duration
	// Servers are the requests that each real server answered, by its name.
	Servers map[string]uint64
}

// Add adds what was measured in another turn. A quantile is then the mean of the
// turns', weighted by their requests.
func (o *Outcome) Add(turn *Outcome) {
	mean := func(a, b time.Duration) time.Duration {
		if o.Done+turn.Done == 0 {
			return 0
		}
		return time.Duration((float64(a)*float64(o.Done) + float64(b)*float64(turn.Done)) / float64(o.Done+turn.Done))
	}
	o.P50, o.P95 = mean(o.P50, turn.P50), mean(o.P95, turn.P95)
	o.Done += turn.Done
	o.Failed += turn.Failed
	o.Bytes += turn.Bytes
	o.Elapsed += turn.Elapsed
	o.Busy += turn.Busy
	if o.Servers == nil {
		o.Servers = make(map[string]uint64)
	}
	for name, n := range turn.Servers {
		o.Servers[name] += n
	}
}

// Rate returns the requests a second.
func (o *Outcome) Rate() float64 { return float64(o.Done) / o.Elapsed.Seconds() }

// BitRate returns the bits a second.
func (o *Outcome) BitRate() float64 { return 8 * float64(o.Bytes) / o.Elapsed.Seconds() }

// CPU returns the processor time of the whole machine for a request.
func (o *Outcome) CPU() time.Duration {
	if o.Done == 0 {
		return 0
	}
	return o.Busy / time.Duration(o.Done)
}

const serverPrefix = "server_"

// parseOutcome reads the line that the client prints.
func parseOutcome(line string) (*Outcome, error) {
	o := &Outcome{Servers: make(map[string]uint64)}
	seen := make(map[string]bool)
	for _, f := range strings.Fields(line) {
		name, text, ok := strings.Cut(f, "=")
		v, err := strconv.ParseFloat(text, 64)
		if !ok || err != nil || !(v >= 0 && v < 1<<53) || seen[name] {
			return nil, fmt.Errorf("client printed %q: wrong field %q", line, f)
		}
		seen[name] = true
		switch name {
		case "done":
			o.Done = uint64(v)
		case "failed":
			o.Failed = uint64(v)
		case "bytes":
			o.Bytes = uint64(v)
		case "seconds":
			o.Elapsed = time.Duration(v * float64(time.Second))
		case "busy":
			o.Busy = time.Duration(v * float64(time.Second))
		case "p50":
			o.P50 = time.Duration(v * float64(time.Microsecond))
		case "p95":
			o.P95 = time.Duration(v * float64(time.Microsecond))
		default:
			if server, ok := strings.CutPrefix(name, serverPrefix); ok {
				o.Servers[server] = uint64(v)
			}
		}
	}
	for _, name := range []string{"failed", "bytes", "seconds", "busy"} {
		if !seen[name] {
			return nil, fmt.Errorf("client printed %q: no %s", line, name)
		}
	}
	if o.Elapsed <= 0 {
		return nil, fmt.Errorf("client printed %q: it measured no time", line)
	}
	return o, nil
}
