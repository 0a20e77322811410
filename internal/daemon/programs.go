package daemon

import (
	"fmt"
	"slices"
	"time"

	"github.com/lbd-project/lbd/healthcheck/execcheck"
	"github.com/lbd-project/lbd/internal/command"
	"github.com/lbd-project/lbd/internal/config"
)

// programPatience is how long a look at the programs may take: they may be in a
// file system that hangs.
const programPatience = 2 * time.Second

// programs looks at the programs that a configuration has lbd run: one that is not
// there is noticed when it is needed, and one that others than root may change
// lets them be root.
type programs struct {
	// exposed says what is wrong with a program.
	exposed func(command.Spec) error
	// looking holds a token until the look under way has ended.
	looking chan struct{}
}

func newPrograms(exposed func(command.Spec) error) *programs {
	return &programs{exposed: exposed, looking: make(chan struct{}, 1)}
}

// program is one of them, with who runs it first.
type program struct {
	path, user, group string
	what              string
}

// programsOf returns the programs of a configuration, each once.
func programsOf(c *config.Config) []program {
	var list []program
	seen := make(map[program]bool)
	add := func(p program, what string) {
		if !seen[p] {
			seen[p] = true
			p.what = what
			list = append(list, p)
		}
	}
	for i := range c.VirtualServices {
		vs := &c.VirtualServices[i]
		for rs := range vs.Servers() {
			for j := range rs.Probes {
				if m, ok := rs.Probes[j].Method.(execcheck.Check); ok {
					add(program{path: m.Args[0], user: m.User, group: m.Group}, "check of "+vs.Name)
				}
			}
		}
		if q := &vs.Quorum; len(q.OnUp) > 0 {
			add(program{path: q.OnUp[0]}, "on_up of "+vs.Name)
		}
		if q := &vs.Quorum; len(q.OnDown) > 0 {
			add(program{path: q.OnDown[0]}, "on_down of "+vs.Name)
		}
	}
	for i := range c.Hooks {
		if h := c.Hooks[i].Exec; h != nil {
			add(program{path: h.Args[0], user: h.User, group: h.Group}, "exec of notify")
		}
	}
	return list
}

// warnings says what is wrong with the programs of a configuration. Looks wait for
// each other.
func (p *programs) warnings(c *config.Config) []string {
	list := programsOf(c)
	if len(list) == 0 {
		return nil
	}
	const hangs = "programs could not be looked at: the file system does not answer"
	patience := time.NewTimer(programPatience)
	defer patience.Stop()
	select {
	case p.looking <- struct{}{}:
	case <-patience.C:
		return []string{hangs}
	}
	done := make(chan []string, 1)
	go func() {
		w := p.look(list)
		<-p.looking
		done <- w
	}()
	select {
	case w := <-done:
		return w
	case <-patience.C:
		return []string{hangs}
	}
}

func (p *programs) look(list []program) []string {
	var warnings []string
	for _, q := range list {
		err := p.exposed(command.Spec{Args: []string{q.path}, User: q.user, Group: q.group})
		if err == nil {
			continue
		}
		warnings = append(warnings, fmt.Sprintf("program %s (%s, runs as %s): %v", q.path, q.what, q.runsAs(), err))
	}
	slices.Sort(warnings)
	return warnings
}

func (q program) runsAs() string {
	if q.user == "" {
		return "lbd's own user"
	}
	return "user " + q.user
}
