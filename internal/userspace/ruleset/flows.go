package ruleset

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/google/nftables"

	"github.com/lbd-project/lbd/internal/flow"
)

// Flow is a flow by direct routing, which connection tracking does not know.
type Flow struct {
	flow.Tuple
	// Mark is the real server's.
	Mark uint32
	// Inactive is set once the client's side closed.
	Inactive bool
	// Expires is what is left, unless a packet comes.
	Expires time.Duration
}

// Flows calls visit for each flow by direct routing. A flow must not be kept by
// its address. They may be of real servers that are gone.
func (r *Rules) Flows(ctx context.Context, visit func(*Flow)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.eachFlow(ctx, func(_ *table, _ *nftables.SetElement, v *Flow) { visit(v) })
}

// DeleteFlows deletes the flows of real servers by direct routing: the next
// packet of such a flow belongs to none. Those that expire meanwhile are no
// error.
func (r *Rules) DeleteFlows(ctx context.Context, marks ...uint32) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	gone := make(map[*table][]nftables.SetElement)
	err := r.eachFlow(ctx, func(t *table, e *nftables.SetElement, v *Flow) {
		if slices.Contains(marks, v.Mark) {
			gone[t] = append(gone[t], nftables.SetElement{Key: e.Key})
		}
	})
	if err != nil {
		return err
	}
	for t, list := range gone {
		if err := r.deleteElements(ctx, t.sets[mapFlows], list); err != nil {
			return fmt.Errorf("delete flows: %w", err)
		}
	}
	return nil
}

func (r *Rules) eachFlow(ctx context.Context, visit func(*table, *nftables.SetElement, *Flow)) error {
	for _, t := range r.tables {
		if err := ctx.Err(); err != nil {
			return err
		}
		list, _, err := r.elements(t.sets[mapFlows])
		if err != nil {
			return err
		}
		for i := range list {
			if v, ok := t.flowOf(&list[i]); ok {
				visit(t, &list[i], &v)
			}
		}
	}
	return nil
}

// flowOf reads an element of mapFlows: both addresses, the protocol and the
// ports, each in registers of its own, and the mark.
func (t *table) flowOf(e *nftables.SetElement) (Flow, bool) {
	n := int(t.size)
	if len(e.Key) != 2*n+12 || len(e.Val) != 4 {
		return Flow{}, false
	}
	proto, rest := e.Key[2*n], e.Key[2*n+4:]
	src, dst := binary.BigEndian.Uint16(rest), binary.BigEndian.Uint16(rest[4:])
	value := binary.NativeEndian.Uint32(e.Val)
	v := Flow{Mark: value & t.opts.Mask, Inactive: value&t.opts.Inactive() != 0, Expires: e.Expires}
	if n == 4 {
		v.Tuple = flow.New4(proto, [4]byte(e.Key[:4]), [4]byte(e.Key[4:8]), src, dst)
	} else {
		v.Tuple = flow.New6(proto, [16]byte(e.Key[:16]), [16]byte(e.Key[16:32]), src, dst)
	}
	return v, true
}
