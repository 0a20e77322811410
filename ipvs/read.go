package ipvs

import (
	"context"
	"net/netip"
	"slices"
	"syscall"
)

// Services returns the virtual services with their statistics, sorted by key;
// nil if there are none.
func (c *Client) Services(ctx context.Context) (services []ServiceStatus, err error) {
	err = c.run(ctx, func() error {
		services, err = c.services(ctx)
		return err
	})
	if err != nil {
		return nil, &Error{Op: "list services", Err: err}
	}
	return services, nil
}

// Service returns a virtual service with its statistics. It fails with
// ErrServiceNotFound if there is none of that key.
func (c *Client) Service(ctx context.Context, k ServiceKey) (s ServiceStatus, err error) {
	if err = k.check(); err == nil {
		err = c.run(ctx, func() error {
			s, err = c.service(ctx, k)
			return err
		})
	}
	if err != nil {
		return ServiceStatus{}, &Error{Op: "get service", Service: k, Err: err}
	}
	return s, nil
}

// Destinations returns the real servers of a service in the scheduler's list
// order, the newest first. A service that does not exist has none, which is no
// error: that is how the kernel answers, and who cares asks for the service.
func (c *Client) Destinations(ctx context.Context, k ServiceKey) (list []DestinationStatus, err error) {
	if err = k.check(); err == nil {
		err = c.run(ctx, func() error {
			list, err = c.destinations(ctx, k, nil)
			return err
		})
	}
	if err != nil {
		return nil, &Error{Op: "list destinations", Service: k, Err: err}
	}
	return list, nil
}

// Table returns every service with its real servers and all statistics,
// services sorted by key, real servers in list order; nil if there are none.
//
// It is not a snapshot: the kernel is asked service by service. A service that
// is deleted meanwhile is left out or whole, except that a change in the middle
// of a list too long for one datagram (about 80 real servers) can hide one of
// its servers. Only the next reading tells whether that one is really gone.
func (c *Client) Table(ctx context.Context) (table []TableEntry, err error) {
	err = c.run(ctx, func() error {
		table, err = c.table(ctx)
		return err
	})
	if err != nil {
		return nil, &Error{Op: "read table", Err: err}
	}
	return table, nil
}

func (c *Client) services(ctx context.Context) (list []ServiceStatus, err error) {
	err = c.dumpWhole(ctx, cmdGetService, cmdNewService, nil,
		func() { list = list[:0] },
		func(b []byte) error {
			s, err := decodeService(b, c.names)
			if err == nil {
				list = append(list, s)
			}
			return err
		})
	if err != nil || len(list) == 0 {
		return nil, err
	}
	slices.SortStableFunc(list, func(a, b ServiceStatus) int { return a.ServiceKey.Compare(b.ServiceKey) })
	// A service that is put in while the kernel dumps shifts the others, and one
	// comes twice.
	return slices.CompactFunc(list, func(a, b ServiceStatus) bool { return a.ServiceKey == b.ServiceKey }), nil
}

// serviceKeys returns the keys of the services in no order, doubles included.
func (c *Client) serviceKeys(ctx context.Context) (keys []ServiceKey, err error) {
	err = c.dumpWhole(ctx, cmdGetService, cmdNewService, nil,
		func() { keys = keys[:0] },
		func(b []byte) error {
			k, err := decodeServiceKey(b, c.names)
			if err == nil {
				keys = append(keys, k)
			}
			return err
		})
	return keys, err
}

func (c *Client) service(ctx context.Context, k ServiceKey) (s ServiceStatus, err error) {
	err = c.get(ctx, cmdGetService, cmdNewService,
		func(b []byte) []byte { return appendServiceKeyNest(b, k) },
		func(b []byte) (err error) {
			s, err = decodeService(b, c.names)
			return err
		})
	return s, err
}

// destinations appends the real servers of a service to list.
func (c *Client) destinations(ctx context.Context, k ServiceKey, list []DestinationStatus) ([]DestinationStatus, error) {
	from := len(list)
	err := c.dumpWhole(ctx, cmdGetDest, cmdNewDest,
		func(b []byte) []byte { return appendServiceKeyNest(b, k) },
		func() { list = list[:from] },
		func(b []byte) error {
			list = append(list, DestinationStatus{})
			return decodeDest(b, k.Family, &list[len(list)-1])
		})
	if err != nil {
		return nil, err
	}
	if c.datagrams > 2 { // of which the last is the end of the dump
		return dropDoubles(list, from), nil
	}
	return list, nil
}

// dropDoubles keeps the first of the real servers from index from on that have
// the same address.
func dropDoubles(list []DestinationStatus, from int) []DestinationStatus {
	seen := make(map[netip.AddrPort]struct{}, len(list)-from)
	kept := list[:from]
	for _, d := range list[from:] {
		if _, ok := seen[d.Address]; ok {
			continue
		}
		seen[d.Address] = struct{}{}
		kept = append(kept, d)
	}
	return kept
}

func (c *Client) table(ctx context.Context) ([]TableEntry, error) {
	services, err := c.services(ctx)
	if err != nil || len(services) == 0 {
		return nil, err
	}
	// All real servers go into one slice that is cut up in the end: twenty
	// thousand are read in a thousand dumps.
	all := make([]DestinationStatus, 0, c.servers+c.servers/8)
	table := make([]TableEntry, 0, len(services))
	ends := make([]int, 0, len(services))
	for _, s := range services {
		from := len(all)
		if all, err = c.destinations(ctx, s.ServiceKey, all); err != nil {
			return nil, err
		}
		if len(all) == from {
			// No servers, or no service any more.
			switch _, err := c.service(ctx, s.ServiceKey); {
			case isKernelErrno(err, syscall.ESRCH):
				continue
			case err != nil:
				return nil, err
			}
		}
		table = append(table, TableEntry{ServiceStatus: s})
		ends = append(ends, len(all))
	}
	c.servers = len(all)
	from := 0
	for i, end := range ends {
		if end > from {
			table[i].Destinations = all[from:end:end]
		}
		from = end
	}
	if len(table) == 0 {
		return nil, nil
	}
	return table, nil
}
