package conntrack

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const netlinkFile = `sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode
0000000000000000 0   1234       00000111 0        0        0     2        0        100
0000000000000000 12  -4124      00000007 0        0        0     2        0        101
0000000000000000 12  1234       00000004 0        0        0     2        5        102
0000000000000000 12  1235       00000038 0        0        0     2        0        103
0000000000000000 12  1236       00000000 0        0        0     2        0        104
0000000000000000 16  0          00000001 0        0        0     2        0        105
`

func TestParseListeners(t *testing.T) {
	got, err := parseListeners(strings.NewReader(netlinkFile))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]uint64{101, 102}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for name, text := range map[string]string{
		"empty":      "",
		"no column":  "sk Eth Pid\n",
		"short line": netlinkFile + "0 12 1\n",
		"groups":     strings.ReplaceAll(netlinkFile, "00000007", "xyz"),
		"inode":      strings.ReplaceAll(netlinkFile, "101", "-1"),
	} {
		if got, err := parseListeners(strings.NewReader(text)); err == nil {
			t.Errorf("%s: want an error, got %v", name, got)
		}
	}
}
