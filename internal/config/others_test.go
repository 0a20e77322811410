package config

import (
	"slices"
	"strings"
	"testing"
)

// What an error says that lbd calls a key must be there, at its place, and the
// word of the others not.
func TestOthersKeys(t *testing.T) {
	for o, words := range othersKeys {
		for word, ours := range words {
			if _, ok := o.find(word); ok {
				t.Errorf("%s has %s itself", o.what, word)
			}
			path, value, hasValue := strings.Cut(ours, ": ")
			at, k := o, (*key)(nil)
			for _, name := range strings.Split(path, ".") {
				i := -1
				if at != nil {
					i = slices.Index(at.names, name)
				}
				if i < 0 || at.keys[i].unsupported {
					t.Fatalf("%s: %s is for %s: there is no %s", o.what, ours, word, name)
				}
				k = &at.keys[i]
				at = k.object
			}
			if hasValue && !slices.Contains(k.enum, value) {
				t.Errorf("%s: %s is for %s: want %s", o.what, ours, word, oneOf(k.enum))
			}
		}
	}
}
