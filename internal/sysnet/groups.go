package sysnet

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"
)

// groups collects the addresses that have the same thing wrong with them, so
// that thousands of real servers make one warning.
type groups[K comparable] map[K][]netip.Addr

func (g *groups[K]) add(k K, a netip.Addr) {
	if *g == nil {
		*g = make(groups[K])
	}
	(*g)[k] = append((*g)[k], a)
}

// sorted yields the groups in the order of the printed keys.
func (g groups[K]) sorted() iter.Seq2[K, []netip.Addr] {
	return g.sortedBy(func(a, b K) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
}

// sortedBy yields the groups in order.
func (g groups[K]) sortedBy(compare func(a, b K) int) iter.Seq2[K, []netip.Addr] {
	return func(yield func(K, []netip.Addr) bool) {
		keys := make([]K, 0, len(g))
		for k := range g {
			keys = append(keys, k)
		}
		slices.SortFunc(keys, compare)
		for _, k := range keys {
			if !yield(k, g[k]) {
				return
			}
		}
	}
}
