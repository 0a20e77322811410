package ruleset

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/lbd-project/lbd/internal/netns"
	"github.com/lbd-project/lbd/internal/netnstest"
)

// inNamespace runs a command in a network namespace.
func inNamespace(fd int, cmd *exec.Cmd) (string, error) {
	var out []byte
	err := netns.In(fd, func() (err error) {
		out, err = cmd.CombinedOutput()
		return err
	})
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return string(out), nil
}

// rulesOf gives the helpers of other namespaces something to stand on.
func (l *lab) rulesOf(ns *netnstest.NS) *Rules { return &Rules{opts: Options{NetNS: ns.FD()}} }

// waitFlow waits for one flow from an address to satisfy ok.
func (l *lab) waitFlow(from string, ok func(Flow) bool) {
	l.t.Helper()
	var last []Flow
	for end := time.Now().Add(waitTime); time.Now().Before(end); time.Sleep(time.Millisecond) {
		last = slices.DeleteFunc(l.routedFlows(), func(f Flow) bool { return !strings.Contains(f.String(), " "+from+" > ") })
		if len(last) == 1 && ok(last[0]) {
			return
		}
	}
	l.t.Fatalf("flow from %s: %+v", from, last)
}

func (l *lab) routedFlows() []Flow {
	l.t.Helper()
	var list []Flow
	if err := l.rules.Flows(l.t.Context(), func(f *Flow) { list = append(list, *f) }); err != nil {
		l.t.Fatal(err)
	}
	return list
}

// routes lists the balancer's routes of both versions.
func (l *lab) routes() string {
	l.t.Helper()
	var all string
	for _, v := range []string{"-4", "-6"} {
		out, err := l.lb.Run(exec.Command("ip", v, "route"))
		if err != nil {
			l.t.Fatal(err)
		}
		all += out
	}
	return all
}
