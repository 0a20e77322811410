package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lbd-project/lbd/internal/certtest"
)

func cmdServer(s *script, args []string) (string, error) {
	if len(args) < 2 {
		return "", usage("server NAME refuse|open|sick|well|unplug|plug|kill|restart|say WORD...|silent|limit N|fell|certificate DURATION")
	}
	srv := s.lab.Server(args[0])
	switch args[1] {
	case "refuse":
		srv.Refuse(HTTPPort)
	case "open":
		srv.Open(HTTPPort)
	case "sick":
		srv.Refuse(HealthPort)
	case "well":
		srv.Open(HealthPort)
	case "unplug":
		srv.Unplug()
	case "plug":
		srv.Plug()
	case "kill":
		srv.Kill()
	case "restart":
		srv.Open(HTTPPort)
		srv.Open(HealthPort)
	case "say":
		srv.Say(strings.Join(args[2:], " "))
	case "silent":
		srv.Refuse(AgentPort)
	case "limit":
		if len(args) != 3 {
			return "", usage("server NAME limit N")
		}
		n, err := strconv.Atoi(args[2])
		if err != nil {
			return "", err
		}
		srv.Limit(n)
	case "certificate":
		if len(args) != 3 {
			return "", usage("server NAME certificate DURATION")
		}
		d, err := time.ParseDuration(args[2])
		if err != nil {
			return "", err
		}
		srv.Certify(certtest.SelfSigned(s.tb, certtest.Spec{NotAfter: time.Now().Add(d)}).TLS)
	case "fell":
		if srv.Fell() == 0 {
			return "", fmt.Errorf("%s did not fall", args[0])
		}
	default:
		return "", fmt.Errorf("unknown state %q", args[1])
	}
	return "", nil
}
