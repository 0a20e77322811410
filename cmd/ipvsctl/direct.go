package main

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/lbd-project/lbd/internal/api"
	"github.com/lbd-project/lbd/ipvs"
)

// kernelTable is what --direct needs of an ipvs.Client.
type kernelTable interface {
	Table(ctx context.Context) ([]ipvs.TableEntry, error)
	Connections(ctx context.Context) iter.Seq2[ipvs.Connection, error]
	Close() error
}

func openKernel() (kernelTable, error) {
	c, err := ipvs.Open()
	if err != nil {
		return nil, err // not a nil *ipvs.Client in an interface
	}
	return c, nil
}

// direct reads the kernel's table past lbd. It writes nothing.
func (a *app) direct(ctx context.Context) ([]api.Service, error) {
	table, err := a.openKernel()
	if err != nil {
		return nil, fmt.Errorf("look at the kernel: %w", err)
	}
	defer table.Close()
	entries, err := a.readTable(ctx, table)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(entries, func(a, b ipvs.TableEntry) int { return a.ServiceKey.Compare(b.ServiceKey) })
	services := make([]api.Service, len(entries))
	for i, e := range entries {
		services[i] = api.TableService(e)
	}
	return services, nil
}

// readTable reads the kernel's services.
func (a *app) readTable(ctx context.Context, table kernelTable) ([]ipvs.TableEntry, error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	entries, err := table.Table(ctx)
	if err != nil {
		return nil, fmt.Errorf("look at the kernel: %w", err)
	}
	return entries, nil
}

// listDirect lists the kernel's table, or the service of it with this key or
// address.
func (a *app) listDirect(ctx context.Context, names []string) error {
	services, err := a.direct(ctx)
	if err != nil {
		return err
	}
	return a.printHeld(services, names, "the kernel")
}

// listTable lists what the engine of lbd holds, or the service of it with this
// key or address.
func (a *app) listTable(ctx context.Context, names []string) error {
	c := a.client()
	c.OnAnswer = nil // it may be more than what is asked for
	services, err := c.Table(ctx)
	if err != nil {
		return err
	}
	return a.printHeld(services, names, "the table")
}

// printHeld prints services of which only the table is known, or the one with a
// key or address.
func (a *app) printHeld(services []api.Service, names []string, where string) error {
	if len(names) > 0 {
		services = slices.DeleteFunc(services, func(s api.Service) bool {
			return s.Key != names[0] && cmp.Or(s.Address, s.Key) != names[0]
		})
		if len(services) == 0 {
			return fmt.Errorf("virtual service %q: %w in %s", names[0], api.ErrNotFound, where)
		}
	}
	if !a.text() {
		return a.printValue(services)
	}
	a.printServices(services, true)
	return nil
}
