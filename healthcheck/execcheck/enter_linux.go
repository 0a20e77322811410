package execcheck

import (
	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/internal/netns"
)

// enter returns what calls a function in the namespace of that name, or else in
// that of the probes. A name is looked up each time.
func enter(namespace string, env healthcheck.Env) func(start func() error) error {
	if namespace == "" {
		return env.Enter
	}
	return func(start func() error) error {
		ns, err := netns.OpenName(namespace)
		if err != nil {
			return err
		}
		defer ns.Close()
		return ns.Do(start)
	}
}
