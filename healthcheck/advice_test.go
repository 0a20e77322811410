package healthcheck

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestAdviceMerge(t *testing.T) {
	had := Advice{
		Weight: Weight{WeightPercent, 50}, Health: SaysDown, Admin: SaysDrain, Reason: "disk full",
	}
	tests := []struct {
		name       string
		next, want Advice
	}{
		{"nothing", Advice{}, had},
		{"weight", Advice{Weight: Weight{WeightAbsolute, 0}}, Advice{Weight{WeightAbsolute, 0}, SaysDown, SaysDrain, "disk full"}},
		{"health", Advice{Health: SaysUp}, Advice{Weight{WeightPercent, 50}, SaysUp, SaysDrain, ""}},
		{"admin", Advice{Admin: SaysReady, Reason: "back"}, Advice{Weight{WeightPercent, 50}, SaysDown, SaysReady, "back"}},
		{"reason", Advice{Reason: "still full"}, Advice{Weight{WeightPercent, 50}, SaysDown, SaysDrain, "still full"}},
		{"all", Advice{Weight{WeightPercent, 200}, SaysUp, SaysReady, "ok"}, Advice{Weight{WeightPercent, 200}, SaysUp, SaysReady, "ok"}},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, had.merge(tt.next)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// TestAdviceClean has a checker fill in what no field may hold.
func TestAdviceClean(t *testing.T) {
	good := Advice{Weight{WeightPercent, MaxWeight}, SaysDown, SaysMaint, "a reason"}
	tests := []struct {
		name     string
		in, want Advice
	}{
		{"zero", Advice{}, Advice{}},
		{"good", good, good},
		{"much less", Advice{Weight: Weight{WeightLess, 1 << 31}}, Advice{Weight: Weight{WeightLess, MaxWeight}}},
		{"no kind", Advice{Weight: Weight{WeightLess + 1, 5}}, Advice{}},
		{"too heavy", Advice{Weight: Weight{WeightAbsolute, 1 << 31}}, Advice{Weight: Weight{WeightAbsolute, MaxWeight}}},
		{"value of no weight", Advice{Weight: Weight{WeightNone, 5}}, Advice{}},
		{"unknown kind", Advice{Weight: Weight{9, 5}}, Advice{}},
		{"verdicts swapped", Advice{Health: SaysDrain, Admin: SaysUp}, Advice{}},
		{"unknown verdicts", Advice{Health: 99, Admin: 99}, Advice{}},
		{"reason", Advice{Reason: "two\nlines"}, Advice{Reason: "two lines"}},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, tt.in.clean()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestAdviceText(t *testing.T) {
	for w, want := range map[Weight]string{{}: "", {WeightAbsolute, 0}: "0", {WeightAbsolute, 300}: "300", {WeightPercent, 50}: "50%", {WeightMore, 5}: "+5", {WeightLess, 5}: "-5"} {
		if got := w.String(); got != want {
			t.Errorf("%#v: want %q, got %q", w, want, got)
		}
		got := Weight{WeightMore, 1}
		if err := got.UnmarshalText([]byte(want)); err != nil || got != w {
			t.Errorf("parse %q: want %#v, got %#v, %v", want, w, got, err)
		}
	}
	for _, text := range []string{"%", "+", "-", "+5%", "--5", "65536", "4294967297", "5 ", "x", "0x5", "5_0"} {
		var w Weight
		if err := w.UnmarshalText([]byte(text)); err == nil || w != (Weight{}) {
			t.Errorf("parse %q: want an error, got %#v, %v", text, w, err)
		}
	}
	for v, want := range map[Verdict]string{NoVerdict: "", SaysUp: "up", SaysDown: "down", SaysReady: "ready", SaysDrain: "drain", SaysMaint: "maint"} {
		text, err := v.MarshalText()
		if err != nil || string(text) != want {
			t.Errorf("want %q, got %q, %v", want, text, err)
		}
		got := Verdict(99)
		if err := got.UnmarshalText(text); err != nil || got != v {
			t.Errorf("parse %q: want %v, got %v, %v", text, v, got, err)
		}
	}
	if got := Verdict(77).String(); got != "77" {
		t.Errorf("want 77, got %s", got)
	}
	var v Verdict
	if err := v.UnmarshalText([]byte("UP")); err == nil {
		t.Error("parse UP: no error")
	}
}

func TestPrintable(t *testing.T) {
	long := strings.Repeat("x", 300)
	tests := []struct{ in, want string }{
		{"", ""},
		{"disk full", "disk full"},
		{"  a\r\n\tb \u00a0 c ", "a b c"},
		{"\x1b[31mred\x07", "?[31mred?"},
		{"na\u00efve \u00fc", "na\u00efve \u00fc"},
		{"right\u202eleft", "right?left"},
		{"bad\xff\xfeutf", "bad??utf"},
		{" \n ", ""},
		{long[:200], long[:200]},
		{long, long[:197] + "…"},
		{strings.Repeat("ü", 150), strings.Repeat("ü", 98) + "…"},
		{long[:196] + " " + long[:9], long[:196] + "…"},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, Printable(tt.in)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tt.in, diff)
		}
	}
}

func FuzzPrintable(f *testing.F) {
	f.Add("a  b")
	f.Add("\xff\u2028" + strings.Repeat("ü", 120))
	f.Fuzz(func(t *testing.T, in string) {
		got := Printable(in)
		if len(got) > maxText || !utf8.ValidString(got) || strings.ContainsAny(got, "\n\r\x00\x1b") {
			t.Errorf("%q: got %q", in, got)
		}
		if again := Printable(got); again != got {
			t.Errorf("%q: not stable: %q, then %q", in, got, again)
		}
	})
}
