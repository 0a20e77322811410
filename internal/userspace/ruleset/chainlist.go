package ruleset

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// ruleTag marks rules as lbd's: user data that no tool prints, of a type that the
// nft command does not know and so keeps for none of the rules that it writes.
var ruleTag = []byte{0xec, 3, 'l', 'b', 'd'}

// chainState is a chain as the kernel has it.
type chainState struct {
	// uses is how many rules and elements refer to it or are in it.
	uses uint32
	// rules are those in it, foreign those of them without lbd's tag.
	rules, foreign int
	// base says that packets enter it from a hook, drops that they are dropped at
	// its end.
	base, drops bool
}

// chains lists the chains of a table.
func (w *watch) chains(family uint8, table string) (map[string]*chainState, error) {
	chains := map[string]*chainState{}
	err := w.request(unix.NFT_MSG_GETCHAIN, unix.NLM_F_REQUEST|unix.NLM_F_DUMP, family, nil, func(a attributes) {
		if a.text(unix.NFTA_CHAIN_TABLE) != table || len(a[unix.NFTA_CHAIN_USE]) != 4 {
			return
		}
		c := &chainState{uses: binary.BigEndian.Uint32(a[unix.NFTA_CHAIN_USE])}
		_, c.base = a[unix.NFTA_CHAIN_HOOK]
		if v := a[unix.NFTA_CHAIN_POLICY]; len(v) == 4 {
			c.drops = binary.BigEndian.Uint32(v) != nfAccept
		}
		chains[a.text(unix.NFTA_CHAIN_NAME)] = c
	})
	if err != nil {
		return nil, fmt.Errorf("list chains: %w", err)
	}
	of := appendAttribute(nil, unix.NFTA_RULE_TABLE, append([]byte(table), 0))
	err = w.request(unix.NFT_MSG_GETRULE, unix.NLM_F_REQUEST|unix.NLM_F_DUMP, family, of, func(a attributes) {
		c := chains[a.text(unix.NFTA_RULE_CHAIN)]
		if c == nil || a.text(unix.NFTA_RULE_TABLE) != table {
			return
		}
		c.rules++
		if string(a[unix.NFTA_RULE_USERDATA]) != string(ruleTag) {
			c.foreign++
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list rules: %w", err)
	}
	return chains, nil
}

// nfAccept is NF_ACCEPT (include/uapi/linux/netfilter.h).
const nfAccept = 1

// verifyChains returns what is wrong with the chains of a table, if anything.
func (r *Rules) verifyChains(t *table) (string, error) {
	chains, err := r.watch.chains(uint8(t.family), t.nft.Name)
	if err != nil {
		return "", err
	}
	wanted := map[string]bool{}
	for _, c := range t.chains(&t.shape) {
		wanted[c.name] = true
		switch got := chains[c.name]; {
		case got == nil:
			return "chain " + c.name + " is gone", nil
		case got.rules != len(c.rules) || got.foreign > 0:
			return "rules of chain " + c.name, nil
		case got.drops:
			return "policy of chain " + c.name, nil
		}
	}
	for name, want := range t.expectedUses(&r.last) {
		wanted[name] = true
		if got := chains[name]; got == nil || got.uses != want || got.foreign > 0 {
			return "rules of chain " + name, nil
		}
	}
	for name, c := range chains {
		// adopt leaves those of hooks, without effect.
		if !wanted[name] && (!c.base || c.rules > 0 || c.drops) {
			return "a chain " + name + " that is not lbd's", nil
		}
	}
	return "", nil
}
