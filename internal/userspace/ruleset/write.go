package ruleset

import (
	"errors"
	"fmt"
	"slices"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/ipvs"
)

// write puts a difference into the transaction, or the whole table where it is
// not known to be as we left it. Elements go before chains that they name, and
// come after.
func (r *Rules) write(t *table, d *difference, s *Spec) error {
	full := !t.known
	if full {
		// Marks are of no family: this table has missed what was told of them.
		d.removedDead, d.addedDead = nil, s.Dead
	}
	for i := range d.removed {
		if d.removed[i].Persistent {
			t.persistent--
		}
	}
	for i := range d.added {
		if d.added[i].Persistent {
			t.persistent++
		}
	}
	edits := newChanges()
	t.editSignals(edits, s)
	t.editPassive(edits, s)
	next := shape{
		persistent: t.persistent > 0, dead: len(s.Dead) > 0, signals: len(t.signals) > 0,
		passive: len(t.passive) > 0, allEvents: s.AllEvents, timeouts: timeoutsOf(s.Timeouts),
	}
	// Once there, it stays: its base chains are not deleted.
	next.tunnels = t.shape.tunnels || slices.ContainsFunc(d.addedServers, func(v Server) bool { return v.Forward == ipvs.Tunnel })
	next.stateless = next.tunnels || t.shape.stateless || slices.ContainsFunc(d.added, func(v Service) bool { return v.stateless() })
	next.tries = t.shape.tries || next.passive
	shared := t.chains(&next)
	if full {
		t.makeRoom(len(d.addedServers))
		if err := r.adopt(t, shared, d, &next); err != nil {
			return err
		}
	} else if next.stateless && !t.shape.stateless || next.tries && !t.shape.tries {
		news := func(set string) bool { return next.has(set) && !t.shape.has(set) }
		if err := r.create(t, shared, true, news); err != nil {
			return err
		}
	}
	if full || t.shape != next {
		if t.able.CTTimeout == nil {
			for _, v := range timeouts(next.timeouts) {
				r.addTimeout(t.nft, v)
			}
		}
		for i := range shared {
			r.rewrite(t, shared[i].name, shared[i].rules)
		}
	}
	t.known, t.shape = true, next

	// Before the new ones take their regions.
	var left []string
	for i := range d.removed {
		if v := &d.removed[i]; t.hasChain(v) {
			for _, c := range t.serviceChains(v) {
				t.uses[c.name]--
				left = append(left, c.name)
			}
		}
	}
	if err := t.edit(edits, d); err != nil {
		return err
	}
	if next.stateless {
		if err := t.editAnswers(edits, s); err != nil {
			return err
		}
	}
	// A chain must be there before an element names it, and before it is jumped
	// to: a service's own comes last.
	for i := range d.added {
		v := &d.added[i]
		if !t.hasChain(v) {
			continue
		}
		for _, c := range slices.Backward(t.serviceChains(v)) {
			t.uses[c.name]++
			if c.name == chainOf(v.ID) || t.uses[c.name] == 1 {
				r.nft.AddChain(&nftables.Chain{Name: c.name, Table: t.nft})
				r.rewrite(t, c.name, c.rules)
			}
		}
	}
	if err := edits.writeDeletes(t, r.nft); err != nil {
		return err
	}
	if err := edits.writeAdds(t, r.nft); err != nil {
		return err
	}
	for _, name := range left {
		if n, ok := t.uses[name]; ok && n == 0 {
			delete(t.uses, name)
			r.deleteChain(t, name)
		}
	}
	return nil
}

// edit collects a difference's edits of sets.
func (t *table) edit(c *changes, d *difference) error {
	insert := func(set string, e element) {
		if n := t.wanted[set]; n != nil {
			if n[e]++; n[e] > 1 {
				return
			}
		}
		c.insert(set, e)
	}
	remove := func(set string, e element) {
		if n := t.wanted[set]; n != nil {
			if n[e]--; n[e] > 0 {
				return
			}
			delete(n, e)
		}
		c.remove(set, e)
	}
	for i := range d.removed {
		s := &d.removed[i]
		t.serviceElements(s, remove)
		t.shareElements(s, remove)
		if t.opts.FailOpen {
			t.free = append(t.free, t.regions[s.ID])
			delete(t.regions, s.ID)
		}
	}
	for i := range d.added {
		s := &d.added[i]
		if t.opts.FailOpen {
			if err := t.takeRegion(s.ID); err != nil {
				return err
			}
		}
		t.serviceElements(s, insert)
		t.shareElements(s, insert)
	}
	for _, s := range d.removedServers {
		t.serverElements(s, remove)
	}
	for _, s := range d.addedServers {
		t.serverElements(s, insert)
	}
	for _, m := range d.removedDead {
		remove(setDead, element{key: string(u32(m))})
	}
	for _, m := range d.addedDead {
		insert(setDead, element{key: string(u32(m))})
	}
	return nil
}

// takeRegion gives a service its part of mapShares.
func (t *table) takeRegion(id uint32) error {
	if n := len(t.free); n > 0 {
		t.regions[id], t.free = t.free[n-1], t.free[:n-1]
		return nil
	}
	if t.used == maxRegions {
		return fmt.Errorf("more than %d services of one address family", maxRegions)
	}
	t.regions[id] = t.used * regionSize
	t.used++
	return nil
}

// rewrite replaces the rules of a chain; the chain itself stays.
func (r *Rules) rewrite(t *table, name string, rules []exprs) {
	c := &nftables.Chain{Name: name, Table: t.nft}
	r.nft.FlushChain(c)
	for _, e := range rules {
		r.nft.AddRule(&nftables.Rule{Table: t.nft, Chain: c, Exprs: e, UserData: ruleTag})
	}
}

func (r *Rules) deleteChain(t *table, name string) {
	c := &nftables.Chain{Name: name, Table: t.nft}
	r.nft.FlushChain(c)
	r.nft.DelChain(c)
}

func (c *chain) nft(t *table) *nftables.Chain {
	n := &nftables.Chain{Name: c.name, Table: t.nft}
	if c.hook != nil {
		accept := nftables.ChainPolicyAccept
		n.Hooknum, n.Type, n.Priority, n.Policy = c.hook, c.kind, &c.priority, &accept
	}
	return n
}

// orderedSets returns the sets in the order of their numbers.
func (t *table) orderedSets() []*nftables.Set {
	list := make([]*nftables.Set, len(t.sets))
	for _, s := range t.sets {
		list[s.ID-1] = s
	}
	return list
}

func (r *Rules) exists(t *table) (bool, error) {
	list, err := r.nft.ListTablesOfFamily(t.family)
	if err != nil {
		return false, fmt.Errorf("list tables: %w", err)
	}
	for _, n := range list {
		if n.Name == t.nft.Name {
			return true, nil
		}
	}
	return false, nil
}

// adopt makes an empty table out of whatever there is, which an earlier lbd may
// have left. Nothing of it is trusted: all chains and sets are emptied, and
// chains of services that d does not bring back are deleted. Base chains and
// templates stay, but the first Apply deletes base chains of no use: nobody reads
// the queue yet, and each costs every packet of the host.
//
// A chain that is deleted and made again would let packets pass unmarked: one
// that is under way while the kernel changes generations has begun with the old
// rules, finds the new element of a map, and in the new chain that this names
// there are no old rules (nft_do_chain keeps the generation that it began with,
// but look-ups do not).
func (r *Rules) adopt(t *table, shared []chain, d *difference, s *shape) error {
	wanted := map[string]bool{}
	for i := range shared {
		wanted[shared[i].name] = true
	}
	for i := range d.added {
		if v := &d.added[i]; t.hasChain(v) {
			for _, c := range t.serviceChains(v) {
				wanted[c.name] = true
			}
		}
	}
	there, err := r.exists(t)
	if err != nil {
		return err
	}
	r.nft.AddTable(t.nft)
	var stale []string
	if there {
		chains, err := r.nft.ListChainsOfTableFamily(t.family)
		if err != nil {
			return fmt.Errorf("list chains: %w", err)
		}
		for _, c := range chains {
			if c.Table.Name != t.nft.Name {
				continue
			}
			r.nft.FlushChain(&nftables.Chain{Name: c.Name, Table: t.nft})
			if c.Policy != nil && *c.Policy != nftables.ChainPolicyAccept {
				accept := nftables.ChainPolicyAccept
				r.nft.AddChain(&nftables.Chain{Name: c.Name, Table: t.nft, Hooknum: c.Hooknum, Type: c.Type, Priority: c.Priority, Policy: &accept})
			}
			if !wanted[c.Name] && (c.Hooknum == nil || !r.begun) {
				stale = append(stale, c.Name)
			}
		}
	}
	if err := r.create(t, shared, there, s.has); err != nil {
		return err
	}
	for _, name := range stale {
		r.nft.DelChain(&nftables.Chain{Name: name, Table: t.nft})
	}
	return nil
}

// create makes sure of chains, and of the sets that satisfy which; old ones are
// emptied.
func (r *Rules) create(t *table, shared []chain, old bool, which func(set string) bool) error {
	for i := range shared {
		r.nft.AddChain(shared[i].nft(t))
	}
	for _, s := range t.orderedSets() {
		if !which(s.Name) {
			continue
		}
		replace := false
		if old && counted(s.Name) {
			// What is there may have room for fewer, which is never changed. No rule
			// names it any more.
			is, err := r.nft.GetSetByName(t.nft, s.Name)
			if err != nil && !errors.Is(err, unix.ENOENT) {
				return fmt.Errorf("look for set %s: %w", s.Name, err)
			}
			if replace = err == nil && is.Size != s.Size; replace {
				r.nft.DelSet(s)
			}
		}
		if err := r.nft.AddSet(s, nil); err != nil {
			return err
		}
		if old && static(s.Name) && !replace {
			r.nft.FlushSet(s)
		}
	}
	return nil
}

// editAnswers collects the edits of mapAnswers.
func (t *table) editAnswers(c *changes, s *Spec) error {
	want, err := t.wantedAnswers(s)
	if err != nil {
		return err
	}
	for k, v := range t.answers {
		if want[k] != v {
			c.remove(mapAnswers, element{key: k, value: v})
		}
	}
	for k, v := range want {
		if t.answers[k] != v {
			c.insert(mapAnswers, element{key: k, value: v})
		}
	}
	t.answers = want
	return nil
}

// wantedAnswers are the elements of mapAnswers for a Spec. Where answers come
// from must tell which service they belong to.
func (t *table) wantedAnswers(s *Spec) (map[string]string, error) {
	each := map[uint32]*Service{}
	for i := range s.Services {
		if v := &s.Services[i]; v.OnePacket && v.Key.Family == t.is {
			each[v.ID] = v
		}
	}
	want := map[string]string{}
	if len(each) == 0 {
		return want, nil
	}
	for _, v := range s.Servers {
		if each[v.Service] == nil {
			continue
		}
		e, ok := answerElement(v, each[v.Service])
		if was, taken := want[e.key]; ok && taken && was != e.value {
			return nil, fmt.Errorf("real server %v answers for two one-packet services", v.Address)
		}
		if ok {
			want[e.key] = e.value
		}
	}
	return want, nil
}
