package filecheck

import (
	"strings"
	"testing"

	"github.com/lbd-project/lbd/healthcheck"
)

func TestParse(t *testing.T) {
	percent, absolute := healthcheck.WeightPercent, healthcheck.WeightAbsolute
	for text, want := range map[string]healthcheck.Weight{
		"42":             {Kind: absolute, Value: 42},
		"42\n":           {Kind: absolute, Value: 42},
		" \t42 \r\n\n":   {Kind: absolute, Value: 42},
		"0":              {Kind: absolute, Value: 0},
		"65535":          {Kind: absolute, Value: 65535},
		"0050":           {Kind: absolute, Value: 50},
		"50%":            {Kind: percent, Value: 50},
		"0%\n":           {Kind: percent, Value: 0},
		"65535%":         {Kind: percent, Value: 65535},
		"00000000000001": {Kind: absolute, Value: 1},
	} {
		if got, err := parse([]byte(text)); err != nil || got != want {
			t.Errorf("%q: want %+v, got %+v, %v", text, want, got, err)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                      "is empty",
		" \r\n\t":               "is empty",
		"root:x:0:0":            "holds no number",
		"-1":                    "holds no number",
		"+1":                    "holds no number",
		"1_0":                   "holds no number",
		"0x10":                  "holds no number",
		"1.5":                   "holds no number",
		"1e3":                   "holds no number",
		"%":                     "holds no number",
		"50 %":                  "holds no number",
		"50%%":                  "holds no number",
		"4 2":                   "holds no number",
		"4\n2":                  "holds no number",
		"42\x00":                "holds no number",
		"٤٢":                    "holds no number",
		"65536":                 "holds a number over 65535",
		"65536%":                "holds a number over 65535",
		"4294967296":            "holds a number over 65535",
		"18446744073709551616":  "holds a number over 65535",
		strings.Repeat("9", 64): "holds a number over 65535",
	} {
		if got, err := parse([]byte(text)); err == nil || err.Error() != want || got != (healthcheck.Weight{}) {
			t.Errorf("%q: want %q, got %+v, %v", text, want, got, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"42\n", " 50% ", "", "-1", "65536", "4294967338", "\xff"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		w, err := parse(text)
		if err != nil {
			if w != (healthcheck.Weight{}) {
				t.Errorf("%q: weight %+v beside %v", text, w, err)
			}
			return
		}
		if w.Kind == healthcheck.WeightNone || w.Value > healthcheck.MaxWeight {
			t.Errorf("%q: got %+v", text, w)
		}
		if again, err := parse([]byte(w.String())); err != nil || again != w {
			t.Errorf("%q: got %+v, and said again %+v, %v", text, w, again, err)
		}
	})
}

func TestParseChange(t *testing.T) {
	more, less := healthcheck.WeightMore, healthcheck.WeightLess
	for _, tt := range []struct {
		text       string
		multiplier int
		want       healthcheck.Weight
	}{
		{"5\n", 1, healthcheck.Weight{Kind: more, Value: 5}},
		{"+5", 3, healthcheck.Weight{Kind: more, Value: 15}},
		{"-5", 3, healthcheck.Weight{Kind: less, Value: 15}},
		{"5", -3, healthcheck.Weight{Kind: less, Value: 15}},
		{" -5 ", -3, healthcheck.Weight{Kind: more, Value: 15}},
		{"0", -3, healthcheck.Weight{Kind: more, Value: 0}},
		{"65536", 1, healthcheck.Weight{Kind: more, Value: 65535}},
		{"-65536", 1, healthcheck.Weight{Kind: less, Value: 65535}},
		{"2147483647", 65535, healthcheck.Weight{Kind: more, Value: 65535}},
		{"-2147483647", 1, healthcheck.Weight{Kind: less, Value: 65535}},
	} {
		if got, err := parseChange([]byte(tt.text), tt.multiplier); err != nil || got != tt.want {
			t.Errorf("%q times %d: want %+v, got %+v, %v", tt.text, tt.multiplier, tt.want, got, err)
		}
	}
	for _, tt := range []struct {
		text       string
		multiplier int
		want       string
	}{
		{"\n", 1, "is empty"},
		{"a", 1, "holds no number"},
		{"1.5", 1, "holds no number"},
		{"50%", 1, "holds a percentage, which no multiplier goes with"},
		{"2147483648", 1, "holds a number that is not within -2147483648 to 2147483647"},
		{"-2147483648", 1, "holds a number that, multiplied by 1, is -2147483648: a failure"},
		{"2147483647", -2, "holds a number that, multiplied by -2, is -4294967294: a failure"},
	} {
		if got, err := parseChange([]byte(tt.text), tt.multiplier); err == nil || err.Error() != tt.want || got != (healthcheck.Weight{}) {
			t.Errorf("%q times %d: want %q, got %+v, %v", tt.text, tt.multiplier, tt.want, got, err)
		}
	}
}
