package sched

import (
	"net/netip"
	"time"
)

// Sizes and times of the tables of lblc and lblcr (ip_vs_lblc.c,
// ip_vs_lblcr.c).
const (
	localityBits    = 10
	localityBuckets = 1 << localityBits
	localityMax     = localityBuckets * 16 // beyond, idle entries go early
	localityFull    = localityMax * 3 / 2  // beyond, none is added

	localityInterval   = time.Minute // between checks
	localityIdle       = 6 * time.Minute
	localityExpiration = 24 * time.Hour
	localityFullEvery  = 30 // checks

	// localityMembers bounds the servers of all sets of lblcr together. The
	// kernel has no such bound.
	localityMembers = 1 << 18
)

// locality remembers which servers a destination address was sent to. Entries
// live in slices that only grow, up to localityFull entries and localityMembers
// members: nothing is allocated once the cache has been as large before.
//
// A removed server stays in its entries until they expire, and counts again when
// it is inserted again, as in the kernel.
type locality struct {
	unhooked
	t          *Table
	index      map[netip.Addr]int32
	buckets    [localityBuckets]int32 // chains by the kernel's hash, for the order of expiry
	entries    []localityEntry
	members    []member
	free       int32 // chain of unused entries
	freeMember int32
	rover      int
	counter    int
	due        time.Duration
}

// localityEntry is what is known of one address. Links are the number of the
// next entry or member plus 1: zero ends a chain.
type localityEntry struct {
	addr     netip.Addr
	next     int32
	set      int32 // first member; the newest is the first
	size     int32
	lastUse  time.Duration
	modified time.Duration // when the set last changed
}

type member struct {
	server *Server
	next   int32
}

func newLocality(t *Table) *locality {
	return &locality{
		t:       t,
		index:   make(map[netip.Addr]int32),
		counter: 1,
		due:     t.opt.Now() + localityInterval,
	}
}

// find returns the entry of an address, or nil.
func (l *locality) find(a netip.Addr) *localityEntry {
	if i, ok := l.index[a]; ok {
		return &l.entries[i]
	}
	return nil
}

// add makes an entry with one server; in a full cache it does nothing.
func (l *locality) add(a netip.Addr, s *Server, now time.Duration) {
	if len(l.index) >= localityFull || len(l.members) >= localityMembers && l.freeMember == 0 {
		return
	}
	i := l.free - 1
	if i < 0 {
		i = int32(len(l.entries))
		l.entries = append(l.entries, localityEntry{})
	} else {
		l.free = l.entries[i].next
	}
	bucket := &l.buckets[hash32(fold(a), localityBits)]
	l.entries[i] = localityEntry{addr: a, next: *bucket, lastUse: now}
	*bucket = i + 1
	l.index[a] = i
	l.insert(&l.entries[i], s, now)
}

// insert puts a server at the head of an entry's set, if it is not in it.
func (l *locality) insert(e *localityEntry, s *Server, now time.Duration) {
	for m := e.set; m != 0; m = l.members[m-1].next {
		if l.members[m-1].server == s {
			return
		}
	}
	i := l.freeMember - 1
	switch {
	case i >= 0:
		l.freeMember = l.members[i].next
	case len(l.members) >= localityMembers:
		return
	default:
		i = int32(len(l.members))
		l.members = append(l.members, member{})
	}
	l.members[i] = member{server: s, next: e.set}
	e.set, e.modified = i+1, now
	e.size++
}

// erase takes a server out of an entry's set.
func (l *locality) erase(e *localityEntry, s *Server, now time.Duration) {
	for link := &e.set; *link != 0; link = &l.members[*link-1].next {
		i := *link - 1
		if l.members[i].server != s {
			continue
		}
		*link = l.members[i].next
		l.releaseMember(i)
		e.modified = now
		e.size--
		return
	}
}

func (l *locality) releaseMember(i int32) {
	l.members[i] = member{next: l.freeMember}
	l.freeMember = i + 1
}

// check drops entries that were not used for long: every thirtieth time all
// such, otherwise only while there are too many, and then sooner.
func (l *locality) check(now time.Duration) {
	if l.counter%localityFullEvery == 0 {
		l.counter = 1
		if len(l.index) > 0 {
			for i := range localityBuckets {
				l.sweep((l.rover+1+i)%localityBuckets, now-l.expiration())
			}
		}
		return
	}
	excess := len(l.index) - localityMax
	if excess <= 0 {
		l.counter++
		return
	}
	goal := min(excess*4/3, localityMax/2)
	for range localityBuckets {
		l.rover = (l.rover + 1) % localityBuckets
		if goal -= l.sweep(l.rover, now-localityIdle); goal <= 0 {
			return
		}
	}
}

// sweep drops the entries of a bucket last used at or before a time.
func (l *locality) sweep(bucket int, before time.Duration) (dropped int) {
	for link := &l.buckets[bucket]; *link != 0; {
		i := *link - 1
		e := &l.entries[i]
		if e.lastUse > before {
			link = &e.next
			continue
		}
		*link = e.next
		delete(l.index, e.addr)
		for m := e.set; m != 0; {
			next := l.members[m-1].next
			l.releaseMember(m - 1)
			m = next
		}
		*e = localityEntry{next: l.free}
		l.free = i + 1
		dropped++
	}
	return dropped
}
