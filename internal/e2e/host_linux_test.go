package e2e

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWithHost(t *testing.T) {
	broken := errors.New("broken")
	for _, tt := range []struct {
		name string
		end  func(h *Host) error
		want string
	}{
		{"good", func(*Host) error { return nil }, ""},
		{"error", func(*Host) error { return broken }, "broken"},
		{"fatal", func(h *Host) error { h.Fatalf("find %s: %w", "it", broken); return nil }, "find it: broken"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			err := WithHost(func(h *Host) error {
				h.Cleanup(func() { got = append(got, "first") })
				h.Cleanup(func() {
					got = append(got, "second")
					h.Cleanup(func() { got = append(got, "late") })
				})
				return tt.end(h)
			})
			if diff := cmp.Diff([]string{"second", "late", "first"}, got); diff != "" {
				t.Errorf("clean-ups (-want +got)\n%s", diff)
			}
			text := ""
			if err != nil {
				text = err.Error()
			}
			if text != tt.want || err != nil && !errors.Is(err, broken) {
				t.Errorf("error: want %q, got %q", tt.want, text)
			}
		})
	}
}
