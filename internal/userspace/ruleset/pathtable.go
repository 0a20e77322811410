package ruleset

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/mdlayher/netlink"

	"github.com/lbd-project/lbd/ipvs"
)

// pathTable is one of the two tables of Paths.
type pathTable struct {
	version
	nft  *nftables.Table
	sets map[string]*nftables.Set
}

func newPathTable(name string, f ipvs.Family) *pathTable {
	t := &pathTable{version: versionOf(f), sets: map[string]*nftables.Set{}}
	t.nft = &nftables.Table{Name: name, Family: t.family}
	mark, proto, port := nftables.TypeMark, nftables.TypeInetProto, nftables.TypeInetService
	add := func(name string, key ...nftables.SetDatatype) *nftables.Set {
		s := &nftables.Set{Table: t.nft, ID: uint32(len(t.sets) + 1), Name: name,
			IsMap: true, KeyType: *concat(key...), DataType: t.addr}
		t.sets[name] = s
		return s
	}
	// How the nft command prints a number.
	add(mapPathServices, mark).KeyByteOrder = binaryutil.NativeEndian
	add(mapPathServers, mark).KeyByteOrder = binaryutil.NativeEndian
	add(mapPathTunnels, mark).KeyByteOrder = binaryutil.NativeEndian
	answers := add(mapPathAnswers, t.addr, t.addr, proto, port, port)
	answers.Dynamic, answers.HasTimeout = true, true
	answers.Timeout, answers.Size = pathTimeout, maxPathAnswers
	return t
}

// create puts the whole table into the transaction, without elements, in the place
// of what there is.
func (t *pathTable) create(nft *nftables.Conn) error {
	// Added first, since deleting an absent table fails.
	nft.AddTable(t.nft)
	nft.DelTable(t.nft)
	nft.AddTable(t.nft)
	for _, name := range []string{mapPathServices, mapPathServers, mapPathTunnels, mapPathAnswers} {
		if err := nft.AddSet(t.sets[name], nil); err != nil {
			return err
		}
	}
	accept := nftables.ChainPolicyAccept
	for _, c := range t.pathChains() {
		n := &nftables.Chain{Name: c.name, Table: t.nft}
		if c.hook != nil {
			n.Hooknum, n.Type, n.Priority, n.Policy = c.hook, c.kind, &c.priority, &accept
		}
		nft.AddChain(n)
		for _, e := range c.rules {
			nft.AddRule(&nftables.Rule{Table: t.nft, Chain: n, Exprs: e, UserData: ruleTag})
		}
	}
	return nil
}

// pathElements are the elements of a table that Paths writes, by set.
type pathElements map[string]map[string]string

// edit puts the difference between two sets of elements into the transaction.
func (t *pathTable) edit(nft *nftables.Conn, old, next pathElements) error {
	for name, set := range t.sets {
		var gone, fresh []nftables.SetElement
		for k, v := range old[name] {
			if next[name][k] != v {
				gone = append(gone, nftables.SetElement{Key: []byte(k)})
			}
		}
		for k, v := range next[name] {
			if old[name][k] != v {
				fresh = append(fresh, nftables.SetElement{Key: []byte(k), Val: []byte(v)})
			}
		}
		err := errors.Join(
			inChunks(gone, func(c []nftables.SetElement) error { return nft.SetDeleteElements(set, c) }),
			inChunks(fresh, func(c []nftables.SetElement) error { return nft.SetAddElements(set, c) }),
		)
		if err != nil {
			return err
		}
	}
	return nil
}

// transaction makes one transaction, over a connection of its own: after an error
// nothing of it is left.
func (p *Paths) transaction(fill func(*nftables.Conn) error) error {
	nft, err := p.dial()
	if err != nil {
		return err
	}
	if err := fill(nft); err != nil {
		return err
	}
	return nft.Flush()
}

func (p *Paths) dial() (*nftables.Conn, error) {
	return dial(p.opts.NetNS, func(c *netlink.Conn) error {
		// Of some errors the kernel tells once and not for each message, which the
		// library waits for.
		return c.SetReadDeadline(time.Now().Add(pathSendTimeout))
	})
}

const pathSendTimeout = 10 * time.Second

// verify returns what is not as it was written, if anything.
func (p *Paths) verify(t *pathTable, want pathElements) (string, error) {
	chains, err := p.watch.chains(uint8(t.family), t.nft.Name)
	if err != nil {
		return "", err
	}
	for _, c := range t.pathChains() {
		switch got := chains[c.name]; {
		case got == nil:
			return "chain " + c.name + " is gone", nil
		case got.rules != len(c.rules) || got.foreign > 0 || got.drops:
			return "rules of chain " + c.name, nil
		}
	}
	if asleep, err := p.watch.dormant(uint8(t.family), t.nft.Name); err != nil || asleep {
		return "the table is dormant", err
	}
	nft, err := p.dial()
	if err != nil {
		return "", err
	}
	for _, name := range []string{mapPathServices, mapPathServers, mapPathTunnels} {
		list, err := nft.GetSetElements(t.sets[name])
		if err != nil {
			return "", fmt.Errorf("list elements of %s: %w", name, err)
		}
		if len(list) != len(want[name]) {
			return "elements of " + name, nil
		}
		for i := range list {
			if v, ok := want[name][string(list[i].Key)]; !ok || v != string(list[i].Val) {
				return "elements of " + name, nil
			}
		}
	}
	return "", nil
}
