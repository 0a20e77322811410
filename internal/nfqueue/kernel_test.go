package nfqueue

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseKernel(t *testing.T) {
	const text = "    7  31337    12 2   128     3     4      800  1\n65535 4294963100     0 1     0     0     0        0  1\n"
	want := []KernelQueue{
		{Number: 7, PortID: 31337, Waiting: 12, Dropped: 3, UserDropped: 4},
		{Number: 65535, PortID: 4294963100},
	}
	got, err := parseKernel(strings.NewReader(text))
	if err != nil || !cmp.Equal(want, got) {
		t.Errorf("error %v, (-want +got):\n%s", err, cmp.Diff(want, got))
	}
	if got, err := parseKernel(strings.NewReader("")); got != nil || err != nil {
		t.Errorf("no queue: got %v, %v", got, err)
	}
	for _, bad := range []string{"\n", "7 1 0 2 128 0 0\n", "65536 1 0 2 128 0 0 0 1\n", "7 -1 0 2 128 0 0 0 1\n", "7 1 x 2 128 0 0 0 1\n"} {
		if got, err := parseKernel(strings.NewReader(bad)); got != nil || err == nil {
			t.Errorf("%q: want an error, got %v", bad, got)
		}
	}
}
