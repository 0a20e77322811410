package e2e

import (
	"fmt"
	"strconv"
	"time"
)

// crowdEvery is the time from one new connection of a crowd to the next. Limits of
// servers count arrivals of a second.
const crowdEvery = time.Second / arrivalsCounted

func cmdCrowd(s *script, args []string) (string, error) {
	const form = "crowd NAME start N URL|spread|reset|good"
	if len(args) < 2 {
		return "", usage(form)
	}
	c := s.crowds[args[0]]
	switch verb := args[1]; {
	case verb == "start" && len(args) == 4 && c == nil:
		n, err := strconv.Atoi(args[2])
		if err != nil {
			return "", err
		}
		if c, err = s.lab.StartCrowd(args[3], n, crowdEvery); err != nil {
			return "", err
		}
		s.crowds[args[0]] = c
		return "", nil
	case c == nil:
		return "", fmt.Errorf("no crowd %q; %w", args[0], usage(form))
	case verb == "spread" && len(args) == 2:
		r := c.Result()
		if r.Open < c.size {
			return "", fmt.Errorf("%d connections are open, want %d: %v; the last error: %w", r.Open, c.size, r.Spread, r.LastErr)
		}
		return r.Spread.String() + "\n", nil
	case verb == "reset" && len(args) == 2:
		c.Reset()
		return "", nil
	case verb == "good" && len(args) == 2:
		if r := c.Result(); r.Failed > 0 {
			return "", fmt.Errorf("%d connections failed, the last: %w\n%s", r.Failed, r.LastErr, s.daemon.Log())
		}
		return "", nil
	default:
		return "", usage(form)
	}
}
