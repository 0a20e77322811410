package command

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// ids returns the numbers that a program of the account would have, by id(1).
func ids(t *testing.T, name string) (uid, gid uint32, groups []uint32) {
	t.Helper()
	ask := func(flag string) []uint32 {
		out, err := exec.Command("id", flag, name).Output()
		if err != nil {
			t.Fatalf("id %s %s: %v", flag, name, err)
		}
		var n []uint32
		for f := range strings.FieldsSeq(string(out)) {
			var v uint32
			if _, err := fmt.Sscan(f, &v); err != nil {
				t.Fatal(err)
			}
			n = append(n, v)
		}
		slices.Sort(n)
		return n
	}
	return ask("-u")[0], ask("-g")[0], ask("-G")
}

// members returns users that the group database names as members of a group, and
// root.
func members(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("/etc/group")
	if err != nil {
		t.Fatal(err)
	}
	users := []string{"root"}
	for line := range strings.Lines(string(text)) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) == 4 && f[3] != "" {
			users = append(users, strings.Split(f[3], ",")[0])
		}
	}
	slices.Sort(users)
	return slices.Compact(users)
}

func TestLookup(t *testing.T) {
	for _, name := range members(t) {
		uid, gid, groups := ids(t, name)
		want := account{uid: uid, gid: gid, groups: groups}
		for _, by := range []string{name, fmt.Sprint(uid)} {
			got, err := lookup(by, "")
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(got.groups)
			if d := cmp.Diff(want, *got, cmp.AllowUnexported(account{})); d != "" {
				t.Errorf("user %s (-want +got):\n%s", by, d)
			}
		}
	}
}

func TestLookupGroup(t *testing.T) {
	a, err := lookup("root", "")
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		user, group string
		want        *account
	}{
		"none":                  {"", "", nil},
		"numbers, both unknown": {"3999999999", "3888888888", &account{uid: 3999999999, gid: 3888888888}},
		"group by name":         {"3999999999", "root", &account{uid: 3999999999}},
		"group by number":       {"3999999999", "0", &account{uid: 3999999999}},
		"own group":             {"root", "root", a},
		// root's first group is not among the others.
		"other group": {"root", "3888888888", &account{gid: 3888888888, groups: slices.DeleteFunc(slices.Clone(a.groups), func(g uint32) bool { return g == 0 })}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := lookup(tt.user, tt.group)
			if err != nil {
				t.Fatal(err)
			}
			if got != nil && len(got.groups) == 0 {
				got.groups = nil
			}
			if tt.want != nil && len(tt.want.groups) == 0 {
				tt.want.groups = nil
			}
			if d := cmp.Diff(tt.want, got, cmp.AllowUnexported(account{})); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}
