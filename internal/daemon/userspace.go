package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strconv"

	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/internal/memory"
	"github.com/lbd-project/lbd/internal/userspace"
	"github.com/lbd-project/lbd/ipvs"
)

// marksOf returns what the rules of the userspace engine are made with.
func marksOf(u config.Userspace) memory.Marks {
	return memory.Marks{Mask: u.MarkMask, State: u.CTStateMask, Queue: u.QueueBase, Queues: queuesOf(u)}
}

// queuesOf returns how many queues the configuration asks for on this host.
func queuesOf(u config.Userspace) int { return u.QueueCount(runtime.NumCPU()) }

// openUserspace returns what opens the userspace engine as it is configured. left
// are the marks of what an earlier lbd left; zero for nothing.
func openUserspace(u config.Userspace, left memory.Marks, f *memory.EngineFile, log *slog.Logger) opener {
	return func(ctx context.Context, p place) (*opened, error) {
		if left.Mask != 0 && (left.Mask != u.MarkMask || left.State != u.CTStateMask) {
			return nil, fmt.Errorf("userspace: mark_mask and ct_state_mask are %#08x and %#08x in what lbd left, and %#08x and %#08x in the configuration: run lbd --clear first",
				left.Mask, left.State, u.MarkMask, u.CTStateMask)
		}
		o := userspace.Options{
			MarkMask: u.MarkMask, StateMask: u.CTStateMask,
			QueueBase: u.QueueBase, Queues: queuesOf(u), QueueLength: u.QueueLength,
			FailOpen: u.FailOpen, Overhead: u.Overhead, Store: f, Logger: log,
		}
		return openEngine(ctx, p, o)
	}
}

// reopenUserspace returns what opens the userspace engine as it was left.
func reopenUserspace(left memory.Marks, f *memory.EngineFile, log *slog.Logger) opener {
	return func(ctx context.Context, p place) (*opened, error) {
		return openEngine(ctx, p, userspace.Options{
			MarkMask: left.Mask, StateMask: left.State, QueueBase: left.Queue, Queues: left.Queues,
			FailOpen: true, Store: f, Logger: log,
		})
	}
}

func openEngine(ctx context.Context, p place, o userspace.Options) (*opened, error) {
	if p.name != "" {
		o.NetNS, o.Enter = p.FD(), p.Do
	}
	e, err := userspace.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	return &opened{
		engine: e, watched: e,
		version: e.Describe(),
		sysctls: engineSysctls{e},
		threads: o.Queues,
		run:     e.Run, warnings: e.Warnings, repairs: e.Repairs,
		check:   func(c *config.Config) []string { return lines(e.Check(entries(c))) },
		explain: e.Explain, abilities: e.Abilities, handshakes: e,
		clear: e.Clear,
		close: e.Close,
	}, nil
}

// engineSysctls are the settings that the userspace engine has of its own.
type engineSysctls struct{ *userspace.Engine }

// Sysctl implements Sysctls.
func (s engineSysctls) Sysctl(name string) (int, error) {
	text, err := s.Engine.Sysctl(sysctlPrefix + name)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(text)
}

// SetSysctl implements Sysctls.
func (s engineSysctls) SetSysctl(name string, value int) error {
	_, err := s.Engine.SetSysctl(sysctlPrefix+name, strconv.Itoa(value))
	return err
}

// entries returns the table that a configuration asks for.
func entries(c *config.Config) []ipvs.TableEntry {
	table := make([]ipvs.TableEntry, len(c.VirtualServices))
	for i := range c.VirtualServices {
		vs := &c.VirtualServices[i]
		table[i].Service = vs.Service
		for rs := range vs.Servers() {
			table[i].Destinations = append(table[i].Destinations, ipvs.DestinationStatus{Destination: rs.Destination})
		}
	}
	return table
}

func lines(errs []error) []string {
	var out []string
	for _, err := range errs {
		out = append(out, err.Error())
	}
	return out
}
