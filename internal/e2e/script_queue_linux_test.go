package e2e

import (
	"fmt"
	"strconv"

	"github.com/lbd-project/lbd/internal/nfqueue"
)

func cmdQueue(s *script, args []string) (string, error) {
	const form = "queue NODE NUMBER take|give"
	if len(args) != 3 {
		return "", usage(form)
	}
	number, err := strconv.ParseUint(args[1], 10, 16)
	if err != nil {
		return "", err
	}
	name := args[0] + " " + args[1]
	held := s.queues[name]
	switch args[2] {
	case "take":
		if held != nil {
			return "", fmt.Errorf("queue %s is taken already", name)
		}
		s.queues[name], err = nfqueue.Open(nfqueue.Config{Number: uint16(number), NetNS: s.node(args[0]).FD()})
		return "", err
	case "give":
		if held == nil {
			return "", fmt.Errorf("queue %s was not taken", name)
		}
		delete(s.queues, name)
		return "", held.Close()
	default:
		return "", usage(form)
	}
}
