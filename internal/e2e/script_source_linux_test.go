package e2e

import (
	"context"
	"fmt"
	"strconv"
)

// cmdFrom makes requests one after another from one source port.
func cmdFrom(s *script, args []string) (string, error) {
	if len(args) != 3 {
		return "", usage("from PORT N ADDRESS:PORT")
	}
	port, err := strconv.Atoi(args[0])
	if err != nil {
		return "", err
	}
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return "", err
	}
	spread, again := make(Spread), 0
	for range n {
		name, late, err := s.lab.GetFrom(context.Background(), port, args[2])
		if err != nil {
			return spread.String() + "\n", err
		}
		spread[name]++
		if late {
			again++
		}
	}
	return fmt.Sprintf("%v late=%d\n", spread, again), nil
}

// cmdFlow sends UDP packets from one source port.
func cmdFlow(s *script, args []string) (string, error) {
	const form = "flow NAME open ADDRESS:PORT | flow NAME ask"
	if len(args) < 2 {
		return "", usage(form)
	}
	f := s.flows[args[0]]
	switch verb := args[1]; {
	case verb == "open" && len(args) == 3 && f == nil:
		f, err := s.lab.OpenFlow(args[2])
		if err == nil {
			s.flows[args[0]] = f
		}
		return "", err
	case verb == "ask" && len(args) == 2 && f != nil:
		timeout := requestTimeout
		if s.doubts {
			timeout = silenceTimeout
		}
		name, err := f.Ask(timeout)
		return name + "\n", err
	default:
		return "", usage(form)
	}
}
