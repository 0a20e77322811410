package healthcheck

import (
	"strings"
	"testing"
)

// states parses "u" up, "d" down, "p" pending.
func states(s string) []State {
	var out []State
	for _, c := range s {
		out = append(out, map[rune]State{'u': Up, 'd': Down, 'p': Pending}[c])
	}
	return out
}

// TestRuleEval takes every combination of two states through both kinds of rule,
// and rules in rules.
func TestRuleEval(t *testing.T) {
	probe := func(i int) Rule { return Rule{Probe: i} }
	all := func(of ...Rule) Rule { return Rule{Kind: RuleAll, Of: of} }
	anyOf := func(of ...Rule) Rule { return Rule{Kind: RuleAny, Of: of} }
	tests := []struct {
		name string
		rule Rule
		// want has the states of the probes and that of the rule.
		want string
	}{
		{"probe", probe(0), "u=u d=d p=p"},
		{"second probe", probe(1), "ud=d du=u dp=p"},
		{"all", all(probe(0), probe(1)), "uu=u ud=d up=p du=d dd=d dp=d pu=p pd=d pp=p"},
		{"any", anyOf(probe(0), probe(1)), "uu=u ud=u up=u du=u dd=d dp=p pu=u pd=p pp=p"},
		{"all of none", all(), "u=u d=u"},
		{"any of none", anyOf(), "u=d d=d"},
		{"all of any", all(probe(0), anyOf(probe(1), probe(2))), "uud=u udu=u udd=d duu=d udp=p pud=p ddp=d"},
		{"any of all", anyOf(probe(0), all(probe(1), probe(2))), "udd=u duu=u dud=d dup=p pud=p puu=u"},
	}
	for _, tt := range tests {
		for c := range strings.FieldsSeq(tt.want) {
			in, want, _ := strings.Cut(c, "=")
			probes := states(in)
			if got := tt.rule.Eval(func(i int) State { return probes[i] }); got != states(want)[0] {
				t.Errorf("%s of %s: want %v, got %v", tt.name, in, states(want)[0], got)
			}
		}
	}
}
