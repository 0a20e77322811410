package ruleset

import (
	"slices"
	"testing"
)

// TestNetnsDeadOfBothFamilies has a mark among the dead before the second
// family's table is made, which must be able to lose it again.
func TestNetnsDeadOfBothFamilies(t *testing.T) {
	r := openEmpty(t, Options{FailOpen: true})
	all := bothVersions()
	first := Spec{Services: all.Services[:1], Servers: slices.Clone(all.Servers), Dead: []uint32{all.Servers[0].Mark}}
	first.Servers = slices.DeleteFunc(first.Servers, func(s Server) bool {
		return s.Address.Addr().Is4() != first.Services[0].Key.Address.Addr().Is4()
	})
	for i, s := range []Spec{first, func() Spec { s := all; s.Dead = first.Dead; return s }(), all} {
		if err := r.Apply(t.Context(), s); err != nil {
			t.Fatalf("Apply %d: %v", i, err)
		}
	}
	if ok, err := r.Intact(t.Context()); !ok || err != nil {
		t.Errorf("intact: %v, %v", ok, err)
	}
}
