package ruleset

import (
	"maps"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// maxElements is what one message takes: the list of elements is one netlink
// attribute, at most 65535 bytes, and the longest element has 100.
const maxElements = 600

// changes collects the edits of one table's sets, so that an element which goes
// and comes back is not touched at all.
type changes struct {
	del, add map[string]map[element]bool
}

func newChanges() *changes {
	return &changes{del: map[string]map[element]bool{}, add: map[string]map[element]bool{}}
}

func (c *changes) remove(set string, e element) { put(c.del, c.add, set, e) }
func (c *changes) insert(set string, e element) { put(c.add, c.del, set, e) }

// put adds e to one side, unless that takes back what the other side has.
//
// Intervals are an exception: the kernel wants both ends of one together.
func put(side, other map[string]map[element]bool, set string, e element) {
	if set != mapShares && other[set][e] {
		delete(other[set], e)
		return
	}
	if side[set] == nil {
		side[set] = map[element]bool{}
	}
	side[set][e] = true
}

// writeDeletes and writeAdds put the edits into the transaction.
func (c *changes) writeDeletes(t *table, nft *nftables.Conn) error {
	for set, elements := range c.del {
		list := make([]nftables.SetElement, 0, len(elements))
		for _, e := range ordered(elements) {
			list = append(list, nftables.SetElement{Key: []byte(e.key), IntervalEnd: e.end})
		}
		err := inChunks(list, func(chunk []nftables.SetElement) error {
			return nft.SetDeleteElements(t.sets[set], chunk)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *changes) writeAdds(t *table, nft *nftables.Conn) error {
	for set, elements := range c.add {
		list := make([]nftables.SetElement, 0, len(elements))
		for _, e := range ordered(elements) {
			n := nftables.SetElement{Key: []byte(e.key), Val: []byte(e.value), IntervalEnd: e.end}
			if e.chain != "" {
				n.VerdictData = &expr.Verdict{Kind: expr.VerdictGoto, Chain: e.chain}
			}
			list = append(list, n)
		}
		err := inChunks(list, func(chunk []nftables.SetElement) error {
			return nft.SetAddElements(t.sets[set], chunk)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// ordered sorts elements by their keys, an interval's end before the next one's
// begin.
func ordered(elements map[element]bool) []element {
	return slices.SortedFunc(maps.Keys(elements), func(a, b element) int {
		if c := strings.Compare(a.key, b.key); c != 0 || a.end == b.end {
			return c
		}
		if a.end {
			return -1
		}
		return 1
	})
}

func inChunks(list []nftables.SetElement, fn func([]nftables.SetElement) error) error {
	for len(list) > 0 {
		n := min(len(list), maxElements)
		if err := fn(list[:n]); err != nil {
			return err
		}
		list = list[n:]
	}
	return nil
}
