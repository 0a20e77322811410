package ruleset

import (
	"errors"
	"fmt"
	"slices"

	"github.com/lbd-project/lbd/ipvs"
)

// difference is what leads from one Spec to the next. A thing that changed is
// both removed, as it was, and added, as it is.
type difference struct {
	removed, added               []Service
	removedServers, addedServers []Server
	removedDead, addedDead       []uint32
}

// compare finds the difference between two lists. Most of both is equal and in
// the same order, so only what lies between the equal ends is looked up by key.
func compare[K comparable, V any](old, new []V, key func(*V) K, equal func(a, b *V) bool) (removed, added []V) {
	for len(old) > 0 && len(new) > 0 && equal(&old[0], &new[0]) {
		old, new = old[1:], new[1:]
	}
	for len(old) > 0 && len(new) > 0 && equal(&old[len(old)-1], &new[len(new)-1]) {
		old, new = old[:len(old)-1], new[:len(new)-1]
	}
	index := make(map[K]*V, len(old))
	for i := range old {
		index[key(&old[i])] = &old[i]
	}
	for i := range new {
		k := key(&new[i])
		was := index[k]
		if was != nil && equal(was, &new[i]) {
			delete(index, k)
			continue
		}
		added = append(added, new[i])
	}
	for i := range old {
		if index[key(&old[i])] != nil {
			removed = append(removed, old[i])
		}
	}
	return removed, added
}

func diff(old, new *Spec) *difference {
	d := &difference{}
	same := func(a, b *Server) bool { return *a == *b }
	d.removed, d.added = compare(old.Services, new.Services, func(s *Service) uint32 { return s.ID }, (*Service).equal)
	d.removedServers, d.addedServers = compare(old.Servers, new.Servers, func(s *Server) uint32 { return s.Mark }, same)
	d.removedDead, d.addedDead = compare(old.Dead, new.Dead,
		func(m *uint32) uint32 { return *m }, func(a, b *uint32) bool { return *a == *b })
	return d
}

// of keeps one family's part. Marks are of no family, and a tunnel may carry the
// other one.
func (d *difference) of(f ipvs.Family) *difference {
	service := func(s Service) bool { return s.Key.Family != f }
	server := func(s Server) bool { return ipvs.FamilyOf(s.Address.Addr()) != f && s.Forward != ipvs.Tunnel }
	return &difference{
		slices.DeleteFunc(slices.Clone(d.removed), service), slices.DeleteFunc(slices.Clone(d.added), service),
		slices.DeleteFunc(slices.Clone(d.removedServers), server), slices.DeleteFunc(slices.Clone(d.addedServers), server),
		d.removedDead, d.addedDead,
	}
}

// names are the identities that are taken.
type names struct {
	ids   map[uint32]bool
	keys  map[ipvs.ServiceKey]bool
	marks map[uint32]bool
}

func newNames() *names {
	return &names{map[uint32]bool{}, map[ipvs.ServiceKey]bool{}, map[uint32]bool{}}
}

// update takes in a difference. After an error the names are those of neither
// Spec.
func (n *names) update(d *difference) error {
	for i := range d.removed {
		delete(n.ids, d.removed[i].ID)
		delete(n.keys, d.removed[i].Key)
	}
	for i := range d.removedServers {
		delete(n.marks, d.removedServers[i].Mark)
	}
	var errs []error
	for i := range d.added {
		s := &d.added[i]
		if n.ids[s.ID] {
			errs = append(errs, fmt.Errorf("service %v: id %d is taken", s.Key, s.ID))
		}
		if n.keys[s.Key] {
			errs = append(errs, fmt.Errorf("service %v: twice", s.Key))
		}
		n.ids[s.ID], n.keys[s.Key] = true, true
	}
	for _, s := range d.addedServers {
		if n.marks[s.Mark] {
			errs = append(errs, fmt.Errorf("real server %v: mark %#x is taken", s.Address, s.Mark))
		}
		n.marks[s.Mark] = true
	}
	return errors.Join(errs...)
}

// clone copies a Spec. Lists of shares that d did not add are taken from old,
// which has copies already.
func (s *Spec) clone(old *Spec) Spec {
	c := *s
	c.Services, c.Servers, c.Dead = slices.Clone(s.Services), slices.Clone(s.Servers), slices.Clone(s.Dead)
	for i := range c.Services {
		v := &c.Services[i]
		if i < len(old.Services) && slices.Equal(old.Services[i].Fallback, v.Fallback) {
			v.Fallback = old.Services[i].Fallback
		} else {
			v.Fallback = slices.Clone(v.Fallback)
		}
	}
	return c
}
