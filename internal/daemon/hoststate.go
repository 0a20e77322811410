package daemon

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/lbd-project/lbd/internal/daemon/fleet"
	"github.com/lbd-project/lbd/ipvs"
)

// prepareHost sets what the services need of the host before they are there:
// sysctls, timeouts and addresses. What was there before is written down first.
func (o *owner) prepareHost(ctx context.Context, f *fleet.Fleet) error {
	return errors.Join(o.setSysctls(), o.setTimeouts(ctx), o.addVIPs(f))
}

// releaseHost gives back what the services no longer need. Addresses wait until
// the table followed the configuration, so that no service loses its address
// before it is gone.
func (o *owner) releaseHost(ctx context.Context, f *fleet.Fleet, synced bool) error {
	err := o.restoreSysctls(func(name string) bool {
		_, ok := o.loaded.Sysctls[name]
		return !ok
	})
	err = errors.Join(err, o.restoreTimeouts(ctx, o.loaded.Timeouts))
	if synced {
		wanted := o.wantedVIPs(f)
		err = errors.Join(err, o.removeVIPs(func(v VIP) bool {
			_, ok := wanted[v]
			return !ok
		}))
	}
	return err
}

func (o *owner) setSysctls() error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(o.loaded.Sysctls)) {
		if err := o.setSysctl(name, o.loaded.Sysctls[name]); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (o *owner) setSysctl(name string, want int) error {
	have, err := o.host.Sysctl(name)
	if err != nil {
		return err
	}
	_, owned := o.mem.sysctls[name]
	if owned && have == want {
		return nil
	}
	if !owned {
		o.mem.sysctls[name] = have
		if err := o.remember(); err != nil {
			delete(o.mem.sysctls, name)
			return err
		}
	}
	if have == want {
		return nil
	}
	if err := o.host.SetSysctl(name, want); err != nil {
		return err
	}
	o.log.Info("sysctl set", "sysctl", "net.ipv4.vs."+name, "value", want, "before", have)
	return nil
}

// restoreSysctls gives back the values of those that pick chooses.
func (o *owner) restoreSysctls(pick func(name string) bool) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(o.mem.sysctls)) {
		if !pick(name) {
			continue
		}
		old := o.mem.sysctls[name]
		err := o.host.SetSysctl(name, old)
		if errors.Is(err, fs.ErrNotExist) {
			// It went away with the module; the next one starts with defaults.
			delete(o.mem.sysctls, name)
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		delete(o.mem.sysctls, name)
		o.log.Info("sysctl restored", "sysctl", "net.ipv4.vs."+name, "value", old)
	}
	return errors.Join(errs...)
}

func (o *owner) setTimeouts(ctx context.Context) error {
	want := o.loaded.Timeouts
	if want == (ipvs.Timeouts{}) {
		return nil
	}
	have, err := o.engine.Timeouts(ctx)
	if err != nil {
		return err
	}
	old := o.mem.timeouts
	o.mem.timeouts = whereSet(old, old, whereSet(want, have, ipvs.Timeouts{}))
	if err := o.remember(); err != nil {
		o.mem.timeouts = old
		return err
	}
	want = whereSet(want, want, have)
	if want == have {
		return nil
	}
	if err := o.engine.SetTimeouts(ctx, want); err != nil {
		return err
	}
	o.log.Info("timeouts set", "tcp", want.TCP, "tcp_fin", want.TCPFin, "udp", want.UDP)
	return nil
}

// restoreTimeouts gives back those that keep does not set.
func (o *owner) restoreTimeouts(ctx context.Context, keep ipvs.Timeouts) error {
	old := whereSet(keep, ipvs.Timeouts{}, o.mem.timeouts)
	if old == (ipvs.Timeouts{}) {
		return nil
	}
	switch err := o.engine.SetTimeouts(ctx, old); {
	case err == nil:
		o.log.Info("timeouts restored", "tcp", old.TCP, "tcp_fin", old.TCPFin, "udp", old.UDP)
	case !errors.Is(err, ipvs.ErrNotAvailable): // else they went away with the module
		return err
	}
	o.mem.timeouts = whereSet(keep, o.mem.timeouts, ipvs.Timeouts{})
	return nil
}

// whereSet returns the timeouts of t where mask is not zero, and those of other
// elsewhere.
func whereSet(mask, t, other ipvs.Timeouts) ipvs.Timeouts {
	choose := func(mask, t, other time.Duration) time.Duration {
		if mask != 0 {
			return t
		}
		return other
	}
	return ipvs.Timeouts{
		TCP:    choose(mask.TCP, t.TCP, other.TCP),
		TCPFin: choose(mask.TCPFin, t.TCPFin, other.TCPFin),
		UDP:    choose(mask.UDP, t.UDP, other.UDP),
	}
}

// wantedVIPs returns the addresses of the services on the VIP interface.
func (o *owner) wantedVIPs(f *fleet.Fleet) map[VIP]struct{} {
	vips := make(map[VIP]struct{})
	if o.loaded.VIPInterface == "" {
		return vips
	}
	for i := range f.Services {
		if a := f.Services[i].Address.Addr(); a.IsValid() {
			vips[VIP{o.loaded.VIPInterface, a}] = struct{}{}
		}
	}
	return vips
}

// addVIPs adds the addresses that are missing. Those that somebody else put
// there are used and never taken away.
func (o *owner) addVIPs(f *fleet.Fleet) error {
	missing := o.wantedVIPs(f)
	if len(missing) == 0 {
		return nil
	}
	dev := o.loaded.VIPInterface
	have, err := o.host.ListVIPs(dev)
	if err != nil {
		return err
	}
	vips := cloneMap(o.mem.vips)
	for _, h := range have {
		v := VIP{dev, h.Prefix.Addr()}
		if _, ok := missing[v]; ok && h.Own {
			vips[v] = struct{}{} // of an lbd whose memory is lost
		}
		delete(missing, v)
	}
	maps.Copy(vips, missing)
	o.mem.vips = vips
	if err := o.remember(); err != nil {
		return err
	}
	added, err := o.host.AddVIPs(dev, addresses(missing))
	for _, a := range added {
		o.log.Info("address added", "address", a, "interface", dev)
		delete(missing, VIP{dev, a})
	}
	for v := range missing {
		delete(o.mem.vips, v) // not added after all, or by somebody else
	}
	return err
}

// removeVIPs removes those of lbd's addresses that pick chooses.
func (o *owner) removeVIPs(pick func(VIP) bool) error {
	byDev := make(map[string]map[VIP]struct{})
	for v := range o.mem.vips {
		if pick(v) {
			if byDev[v.Interface] == nil {
				byDev[v.Interface] = make(map[VIP]struct{})
			}
			byDev[v.Interface][v] = struct{}{}
		}
	}
	var errs []error
	for dev, vips := range byDev {
		removed, err := o.host.RemoveVIPs(dev, addresses(vips))
		for _, a := range removed {
			o.log.Info("address removed", "address", a, "interface", dev)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for v := range vips {
			delete(o.mem.vips, v)
		}
	}
	return errors.Join(errs...)
}

// addresses returns the addresses in order.
func addresses(vips map[VIP]struct{}) []netip.Addr {
	list := make([]netip.Addr, 0, len(vips))
	for v := range vips {
		list = append(list, v.Address)
	}
	slices.SortFunc(list, netip.Addr.Compare)
	return list
}
