package conntrack

import (
	"fmt"

	"github.com/lbd-project/lbd/internal/flow"
)

// Filter says which entries a dump or a delete is about. The zero value is all
// entries, which Delete refuses.
type Filter struct {
	// Family is AF_INET or AF_INET6; zero is both.
	Family uint8
	// Mark is what the entry's mark has within MarkMask. A MarkMask of zero is any
	// mark.
	Mark, MarkMask uint32
	// Status is what the entry's status has within StatusMask; a StatusMask of
	// zero is any status. Every flow that lbd balances by address translation has
	// StatusDstNAT, whatever its mark. Kernels before 5.15 send all entries, and
	// the rest is left out here. Delete refuses it.
	Status, StatusMask uint32
}

func (f *Filter) check() error {
	switch {
	case f.Family != familyUnspec && f.Family != familyIPv4 && f.Family != familyIPv6:
		return fmt.Errorf("filter: address family %d", f.Family)
	case f.Mark&^f.MarkMask != 0:
		return fmt.Errorf("filter: mark %#x is not within mask %#x", f.Mark, f.MarkMask)
	case f.Status&^f.StatusMask != 0:
		return fmt.Errorf("filter: status %#x is not within mask %#x", f.Status, f.StatusMask)
	}
	return nil
}

// match says whether an entry passes. The kernel has sorted by the same rules
// already, unless it is too old for one of them.
func (f *Filter) match(ev *Event) bool {
	if f.Family != familyUnspec && ev.Orig.Is4() != (f.Family == familyIPv4) {
		return false
	}
	return ev.Mark&f.MarkMask == f.Mark && ev.Status&f.StatusMask == f.Status
}

// dumpRequest asks for the entries that pass the filter.
func dumpRequest(seq uint32, f *Filter) []byte {
	b := request(msgGet, flagDump, seq, f.Family, 0)
	if f.MarkMask != 0 {
		b = appendAttr32(b, attrMark, f.Mark)
		b = appendAttr32(b, attrMarkMask, f.MarkMask)
	}
	if f.StatusMask != 0 {
		b = appendAttr32(b, attrStatus, f.Status)
		b = appendAttr32(b, attrStatusMask, f.StatusMask)
	}
	return finish(b)
}

// flushRequest deletes the entries of a mark. A message without CTA_MARK or with
// a mask of zero would delete every entry of the namespace, those of other
// programs too: there is no way to make one here.
func flushRequest(seq uint32, f *Filter) ([]byte, error) {
	if f.MarkMask == 0 {
		return nil, ErrUnboundFlush
	}
	if f.StatusMask != 0 {
		return nil, fmt.Errorf("%w: a filter by status is for dumps", ErrUnboundFlush)
	}
	if err := f.check(); err != nil {
		return nil, err
	}
	b := request(msgDelete, flagAck, seq, f.Family, 1)
	b = appendAttr32(b, attrMark, f.Mark)
	b = appendAttr32(b, attrMarkMask, f.MarkMask)
	return finish(b), nil
}

// deleteRequest deletes one entry. It always has a tuple: without, it would be a
// flush.
func deleteRequest(seq uint32, t *flow.Tuple, id uint32) ([]byte, error) {
	if *t == (flow.Tuple{}) {
		return nil, fmt.Errorf("%w: no flow", ErrUnboundFlush)
	}
	family := uint8(familyIPv6)
	if t.Is4() {
		family = familyIPv4
	}
	b := appendTuple(request(msgDelete, flagAck, seq, family, 0), attrTupleOrig, t)
	if id != 0 {
		b = appendAttr32(b, attrID, id)
	}
	return finish(b), nil
}
