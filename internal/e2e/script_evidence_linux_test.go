package e2e

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"

	"github.com/lbd-project/lbd/internal/netnstest"
)

// evidence adds lbd's log to the error of a request, and for one that nobody answered
// what tells where its packets may have been lost: IPVS's connections, neighbours, and
// what each host counted.
func (s *script) evidence(err error) error {
	if err == nil || s.doubts {
		return err
	}
	err = fmt.Errorf("%w\n%s", err, s.daemon.Log())
	if n, ok := errors.AsType[net.Error](err); !ok || !n.Timeout() {
		return err
	}
	var b strings.Builder
	look := func(name string, ns *netnstest.NS) {
		fmt.Fprintf(&b, "-- %s\n", name)
		out, err := runBounded(ns, exec.Command("ip", "neigh"))
		fmt.Fprintln(&b, out, err)
		for _, file := range []string{"ip_vs_conn", "snmp", "softnet_stat"} {
			var text []byte
			err := ns.Do(func() (err error) {
				text, err = os.ReadFile("/proc/thread-self/net/" + file)
				return err
			})
			if err == nil { // without IPVS there is no such file
				fmt.Fprintf(&b, "%s:\n%s\n", file, text)
			}
		}
	}
	look("client", s.lab.Client)
	look("balancer", s.lab.Balancer)
	for _, srv := range s.lab.Servers {
		look(srv.Name, srv.NS)
	}
	return fmt.Errorf("%w\n%s", err, &b)
}
