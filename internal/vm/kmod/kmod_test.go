package kmod

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseModinfo(t *testing.T) {
	tests := []struct {
		name, in string
		want     Module
	}{
		{"nothing", "", Module{}},
		{"garbage", "\x00\xff\x00no equals sign\x00=\x00==\x00", Module{}},
		{
			"ip_vs",
			"license=GPL\x00alias=net-pf-16-proto-16-family-IPVS\x00depends=nf_conntrack,libcrc32c,nf-defrag-ipv6\x00name=ip_vs\x00vermagic=6.1.0",
			Module{Name: "ip_vs", Depends: []string{"nf_conntrack", "libcrc32c", "nf_defrag_ipv6"}, Aliases: []string{"net-pf-16-proto-16-family-IPVS"}},
		},
		{"no dependency", "name=dummy\x00depends=\x00", Module{Name: "dummy"}},
		{
			"soft dependencies",
			"name=a\x00softdep=pre: b c post: d\x00softdep=post: e\x00softdep=stray pre:\x00",
			Module{Name: "a", SoftPre: []string{"b", "c"}, SoftPost: []string{"d", "e"}},
		},
		{"alias with blanks", "alias=a b\x00alias=ok\x00", Module{Aliases: []string{"ok"}}},
		{"not terminated", "name=cut", Module{Name: "cut"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, ParseModinfo([]byte(tt.in))); diff != "" {
				t.Errorf("module (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReadELFRefuses(t *testing.T) {
	for _, in := range []string{"", "\x7fELF", "#!/bin/sh\n", strings.Repeat("\x7fELF\x02\x01\x01", 40)} {
		if m, err := ReadELF([]byte(in)); err == nil {
			t.Errorf("ReadELF(%.10q) = %+v, want an error", in, m)
		}
	}
}

func TestNameOf(t *testing.T) {
	for in, want := range map[string]string{
		"kernel/net/ip_vs.ko":       "ip_vs",
		"kernel/crypto/crc32c-a.ko": "crc32c_a",
		"a/b.ko.xz":                 "b",
		"b.ko.zst":                  "b",
		"modules.order":             "",
	} {
		if got := NameOf(in); got != want {
			t.Errorf("NameOf(%q) = %q, want %q", in, got, want)
		}
	}
}

// small is an index with every kind of relation.
func small(t *testing.T) *Index {
	t.Helper()
	x := new(Index)
	for _, m := range []Module{
		{Name: "ip_vs", Path: "kernel/ip_vs.ko", Depends: []string{"nf_conntrack", "libcrc32c"}, Aliases: []string{"net-pf-16-proto-16-family-IPVS"}},
		{Name: "ip_vs_wlc", Path: "kernel/ip_vs_wlc.ko", Depends: []string{"ip_vs"}},
		{Name: "nf_conntrack", Path: "kernel/nf_conntrack.ko", Depends: []string{"libcrc32c", "nf_defrag"}},
		{Name: "nf_defrag", Path: "kernel/nf_defrag.ko"},
		{Name: "libcrc32c", Path: "kernel/libcrc32c.ko", SoftPre: []string{"crc32c"}},
		{Name: "crc32c_generic", Path: "kernel/crc32c_generic.ko", Aliases: []string{"crc32c"}},
		{Name: "crc32c_intel", Path: "kernel/crc32c_intel.ko", Aliases: []string{"crc32c", "cpu:type:*feature:*0094*"}, Depends: []string{"built_in"}},
		{Name: "loop_a", Path: "kernel/loop_a.ko", Depends: []string{"loop_b"}},
		{Name: "loop_b", Path: "kernel/loop_b.ko", Depends: []string{"loop_a"}},
		{Name: "lost", Path: "kernel/lost.ko", Depends: []string{"gone"}},
		{Name: "softly", Path: "kernel/softly.ko", SoftPre: []string{"lost", "absent"}, SoftPost: []string{"nf-defrag"}},
	} {
		x.Add(m)
	}
	if err := x.AddBuiltins(strings.NewReader("kernel/lib/built-in.ko\nkernel/x/y.txt\n")); err != nil {
		t.Fatal(err)
	}
	return x
}

func TestOrder(t *testing.T) {
	tests := []struct {
		ask     []string
		want    []string
		wantErr string
	}{
		{ask: []string{"ip-vs-wlc"}, want: []string{"crc32c_generic", "crc32c_intel", "libcrc32c", "nf_defrag", "nf_conntrack", "ip_vs", "ip_vs_wlc"}},
		{ask: []string{"built_in"}},
		{ask: []string{"loop_a"}, want: []string{"loop_b", "loop_a"}},
		{ask: []string{"softly"}, want: []string{"softly", "nf_defrag"}},
		{ask: []string{"nf_defrag", "nf_defrag"}, want: []string{"nf_defrag"}},
		{ask: []string{"cpu:type:x86,ven0fam6mod45:feature:,0094,"}, want: []string{"crc32c_intel"}},
		{ask: []string{"absent"}, wantErr: "module absent not found"},
		{ask: []string{"lost"}, wantErr: "lost needs module gone not found"},
	}
	x := small(t)
	var b bytes.Buffer
	if err := x.Encode(&b); err != nil {
		t.Fatal(err)
	}
	decoded, err := Decode(&b)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range tests {
		for from, x := range map[string]*Index{"built": x, "decoded": decoded} {
			t.Run(strings.Join(tt.ask, " ")+"/"+from, func(t *testing.T) {
				order, err := x.Order(tt.ask...)
				if tt.wantErr != "" {
					if err == nil || err.Error() != tt.wantErr {
						t.Fatalf("error = %v, want %q", err, tt.wantErr)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, m := range order {
					got = append(got, m.Name)
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("order (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	for in, want := range map[string]string{
		"module a\n":                    "module index line 1: module before any module",
		"depends a\n":                   "module index line 1: depends before any module",
		"module a a.ko\n\n":             "module index line 2: too short",
		"module a a.ko\nwhat is this\n": "module index line 2: unknown key \"what\"",
	} {
		_, err := Decode(strings.NewReader(in))
		if err == nil || err.Error() != want {
			t.Errorf("Decode(%q) error = %v, want %q", in, err, want)
		}
	}
}
