package ruleset

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// Intact says whether the tables are as they were applied. It is cheap as long as
// nobody changes any nftables rules of the namespace; after a change of others
// it reads lbd's tables. Where they were changed or deleted, it says so once, and
// the next Apply writes everything. Templates may come and go. Routes of tunnels
// that are missing are set again at once.
func (r *Rules) Intact(ctx context.Context) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if err := r.keepTunnels(); err != nil {
		return false, fmt.Errorf("look after tunnels: %w", err)
	}
	now, err := r.watch.generation()
	if err != nil {
		return false, err
	}
	if now == r.generation && !r.unsure {
		return true, nil
	}
	settled, err := r.settle(now)
	if err != nil || settled || !r.unsure {
		return err == nil, err
	}
	for _, t := range r.tables {
		if !t.known {
			continue
		}
		wrong, err := r.verify(t)
		if errors.Is(err, errInterrupted) {
			// Whoever is writing: the next call looks again.
			return true, nil
		}
		if err != nil {
			return false, err
		}
		if wrong != "" {
			r.opts.Logger.Warn("nftables rules were changed by another program", "family", t.is, "table", t.nft.Name, "what", wrong)
			r.forget()
			return false, nil
		}
	}
	r.generation, r.unsure = now, false
	return true, nil
}

// settle hears what others changed up to a generation. It returns whether that is
// known, and was not about lbd's tables; with unsure set the tables must be read.
// With neither, the last transaction was not told to its end yet.
func (r *Rules) settle(now uint32) (bool, error) {
	touched, err := r.heard.drain(r.opts.Name)
	if err != nil {
		return false, err
	}
	r.unsure = r.unsure || touched
	if r.unsure || r.heard.last != now {
		return false, nil
	}
	r.generation = now
	return true, nil
}

// commit sends the transaction and notes the generation that it made. What others
// did just before or in between makes Intact read the tables.
func (r *Rules) commit() error {
	before, err := r.watch.generation()
	if err == nil && before != r.generation {
		var settled bool
		settled, err = r.settle(before)
		r.unsure = r.unsure || !settled
	}
	if err == nil {
		err = r.heard.leave()
	}
	if err != nil {
		return errors.Join(err, r.abandon())
	}
	err = errors.Join(r.send(), r.heard.join())
	if err != nil {
		return err
	}
	after, err := r.watch.generation()
	if err != nil {
		return err
	}
	r.generation = after
	r.unsure = r.unsure || after-before > 1
	return nil
}

// verify reads a table and returns what is not as it was written, if anything.
func (r *Rules) verify(t *table) (string, error) {
	if there, err := r.exists(t); err != nil || !there {
		return "the table is gone", err
	}
	if asleep, err := r.watch.dormant(uint8(t.family), t.nft.Name); err != nil || asleep {
		return "the table is dormant", err
	}
	if wrong, err := r.verifyChains(t); err != nil || wrong != "" {
		return wrong, err
	}
	want := t.expectedElements(&r.last)
	for _, s := range t.orderedSets() {
		if !static(s.Name) || !t.shape.has(s.Name) {
			continue
		}
		list, there, err := r.elements(s)
		if err != nil {
			return "", err
		}
		if !there {
			return "set " + s.Name + " is gone", nil
		}
		if len(list) != len(want[s.Name]) {
			return "elements of " + s.Name, nil
		}
		for i := range list {
			if !want[s.Name][asElement(&list[i])] {
				return "elements of " + s.Name, nil
			}
		}
	}
	return "", nil
}

// elements lists a set, and says whether it is there.
func (r *Rules) elements(s *nftables.Set) (list []nftables.SetElement, there bool, err error) {
	// Of an absent set GetSetElements gives an error that is only text.
	if _, err := r.nft.GetSetByName(s.Table, s.Name); errors.Is(err, unix.ENOENT) {
		return nil, false, nil
	}
	list, err = r.nft.GetSetElements(s)
	if err != nil {
		err = fmt.Errorf("list elements of %s: %w", s.Name, err)
	}
	return list, true, err
}

// expectedUses is what the kernel counts for each chain of a service: its rules,
// the jumps to it and the elements that name it.
func (t *table) expectedUses(s *Spec) map[string]uint32 {
	uses := map[string]uint32{}
	for i := range s.Services {
		v := &s.Services[i]
		if v.Key.Family != t.is || !t.hasChain(v) {
			continue
		}
		for _, c := range t.serviceChains(v) {
			if uses[c.name] == 0 {
				uses[c.name] = uint32(len(c.rules))
			}
			if c.name != chainOf(v.ID) {
				uses[c.name]++
			}
		}
		t.serviceElements(v, func(_ string, e element) {
			if e.chain != "" {
				uses[e.chain]++
			}
		})
	}
	return uses
}

func (t *table) expectedElements(s *Spec) map[string]map[element]bool {
	want := map[string]map[element]bool{}
	add := func(set string, e element) { put(want, nil, set, e) }
	d := diff(&Spec{}, s).of(t.is)
	for i := range d.added {
		t.serviceElements(&d.added[i], add)
		t.shareElements(&d.added[i], add)
	}
	for _, v := range d.addedServers {
		t.serverElements(v, add)
	}
	for _, m := range d.addedDead {
		add(setDead, element{key: string(u32(m))})
	}
	for m := range t.signals {
		add(setSignals, element{key: string(u32(m))})
	}
	for m := range t.passive {
		passiveElements(m, add)
	}
	for k, v := range t.answers {
		add(mapAnswers, element{key: k, value: v})
	}
	return want
}

// asElement is an element as the kernel lists it. A verdict comes as the
// attributes NFTA_VERDICT_CODE, of 8 bytes, and NFTA_VERDICT_CHAIN.
func asElement(e *nftables.SetElement) element {
	out := element{key: string(e.Key), end: e.IntervalEnd}
	const code = 8
	if a, err := parse(e.Val); len(e.Val) > code && err == nil && len(a[unix.NFTA_VERDICT_CODE]) == 4 {
		out.chain = string(bytes.TrimRight(a[unix.NFTA_VERDICT_CHAIN], "\x00"))
		return out
	}
	out.value = string(e.Val)
	return out
}
