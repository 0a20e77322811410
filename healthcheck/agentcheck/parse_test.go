package agentcheck

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/healthcheck"
)

func percent(n uint32) healthcheck.Weight {
	return healthcheck.Weight{Kind: healthcheck.WeightPercent, Value: n}
}

func absolute(n uint32) healthcheck.Weight {
	return healthcheck.Weight{Kind: healthcheck.WeightAbsolute, Value: n}
}

func TestParse(t *testing.T) {
	up := healthcheck.Advice{Health: healthcheck.SaysUp}
	down := healthcheck.Advice{Health: healthcheck.SaysDown}
	type advice = healthcheck.Advice
	for line, want := range map[string]advice{
		"up":                  up,
		"UP":                  up,
		"\tup , ":             up,
		"up\r":                up,
		"down":                down,
		"Fail":                down,
		"failed":              down,
		"stopped":             down,
		"ready":               {Admin: healthcheck.SaysReady},
		"drain":               {Admin: healthcheck.SaysDrain},
		"maint":               {Admin: healthcheck.SaysMaint},
		"50%":                 {Weight: percent(50)},
		"0%":                  {Weight: percent(0)},
		"65535%":              {Weight: percent(65535)},
		"weight:50%":          {Weight: percent(50)},
		"Weight:20":           {Weight: absolute(20)},
		"weight:0":            {Weight: absolute(0)},
		"weight:65535":        {Weight: absolute(65535)},
		"weight:007":          {Weight: absolute(7)},
		"down # disk full":    {Health: healthcheck.SaysDown, Reason: "disk full"},
		"down#disk full":      {Health: healthcheck.SaysDown, Reason: "disk full"},
		"down#a#up":           {Health: healthcheck.SaysDown, Reason: "a#up"},
		"down #a\x1b\x00\xff": {Health: healthcheck.SaysDown, Reason: "a???"},

		// All at once, in any order.
		"up ready 50%":                    {Health: healthcheck.SaysUp, Admin: healthcheck.SaysReady, Weight: percent(50)},
		"50%,ready\tup":                   {Health: healthcheck.SaysUp, Admin: healthcheck.SaysReady, Weight: percent(50)},
		"75%,maint,down":                  {Health: healthcheck.SaysDown, Admin: healthcheck.SaysMaint, Weight: percent(75)},
		"drain weight:9 stopped # so, up": {Health: healthcheck.SaysDown, Admin: healthcheck.SaysDrain, Weight: absolute(9), Reason: "so, up"},

		// The last one holds.
		"up down":           down,
		"down up":           up,
		"ready maint drain": {Admin: healthcheck.SaysDrain},
		"weight:20 50%":     {Weight: percent(50)},
		"50% weight:20":     {Weight: absolute(20)},
	} {
		t.Run(line, func(t *testing.T) {
			got, detail, err := parse(line)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if want := healthcheck.Printable(line); detail != want {
				t.Errorf("want the detail %q, got %q", want, detail)
			}
		})
	}
}

func TestParseUnknown(t *testing.T) {
	for line, detail := range map[string]string{
		"up foo":             "ignored foo: up foo",
		"foo up, bar":        "ignored foo bar: foo up, bar",
		"up 50":              "ignored 50: up 50",
		"up 65536%":          "ignored 65536%: up 65536%",
		"up -1%":             "ignored -1%: up -1%",
		"up +1%":             "ignored +1%: up +1%",
		"up 1_0%":            "ignored 1_0%: up 1_0%",
		"up %":               "ignored %: up %",
		"up 50%%":            "ignored 50%%: up 50%%",
		"up weight:":         "ignored weight:: up weight:",
		"up weight:65536":    "ignored weight:65536: up weight:65536",
		"up weight:-1":       "ignored weight:-1: up weight:-1",
		"up maxconn:":        "ignored maxconn:: up maxconn:",
		"up maxconn:x":       "ignored maxconn:x: up maxconn:x",
		"up maxconn:50%":     "ignored maxconn:50%: up maxconn:50%",
		"up maxconn:100":     "ignored maxconn:100: up maxconn:100",
		"up upper":           "ignored upper: up upper",
		"up \x1b[2J":         "ignored ?[2J: up ?[2J",
		"up downdown#reason": "ignored downdown: up downdown#reason",
		"up 4294967297%":     "ignored 4294967297%: up 4294967297%",
	} {
		a, got, err := parse(line)
		if err != nil || a.Health != healthcheck.SaysUp || a.Weight.Kind != healthcheck.WeightNone || got != detail {
			t.Errorf("%q: want up alone and %q, got %+v, %q, %v", line, detail, a, got, err)
		}
	}
}

// A limit of connections alone is an answer, which changes nothing.
func TestParseMaxConn(t *testing.T) {
	a, detail, err := parse("MaxConn:100")
	if want := "ignored MaxConn:100: MaxConn:100"; err != nil || a != (healthcheck.Advice{}) || detail != want {
		t.Errorf("want no advice and %q, got %+v, %q, %v", want, a, detail, err)
	}
}

func TestParseErrors(t *testing.T) {
	for line, want := range map[string]string{
		"":                         "empty answer",
		" \t\r":                    "empty answer",
		",":                        `no word of an agent in ","`,
		"# up":                     `no word of an agent in "# up"`,
		"HTTP/1.1 400 Bad Request": `no word of an agent in "HTTP/1.1 400 Bad Request"`,
		"75":                       `no word of an agent in "75"`,
		"\"\x00":                   `no word of an agent in "\"?"`,
	} {
		a, _, err := parse(line)
		if err == nil || err.Error() != want || a != (healthcheck.Advice{}) {
			t.Errorf("%q: want %q, got %+v, %v", line, want, a, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, line := range []string{"up ready 50%", "75%,maxconn:30,maint,down", "drain weight:9 stopped # so", "foo up", "#", "weight:4294967296", "\xff\x00"} {
		f.Add(line)
	}
	f.Add("up\r\ndown\n")
	f.Add(strings.Repeat("up ", 342) + "\n")
	f.Fuzz(func(t *testing.T, answer string) {
		line, err := readLine(strings.NewReader(answer))
		if first, _, _ := strings.Cut(answer, "\n"); err == nil && (len(line) > maxAnswer || line != strings.TrimRight(first, "\r")) {
			t.Errorf("%q: read the line %q", answer, line)
		}
		if err != nil {
			return
		}
		a, detail, err := parse(line)
		if err != nil {
			if a != (healthcheck.Advice{}) {
				t.Errorf("%q: advice %+v beside %v", line, a, err)
			}
			return
		}
		if a.Weight.Value > healthcheck.MaxWeight || a.Weight.Kind == healthcheck.WeightNone && a.Weight.Value != 0 ||
			a.Weight.Kind > healthcheck.WeightPercent || healthcheck.Printable(a.Reason) != a.Reason || strings.ContainsAny(detail, "\n\x00\x1b") {
			t.Errorf("%q: got %+v, %q", line, a, detail)
		}
		if a.Health != healthcheck.NoVerdict && a.Health != healthcheck.SaysUp && a.Health != healthcheck.SaysDown {
			t.Errorf("%q: got health %v", line, a.Health)
		}
		// What it says of itself can be said again.
		words := []string{"maxconn:0", a.Health.String(), a.Admin.String()}
		if a.Weight.Kind != healthcheck.WeightNone {
			words = append(words, "weight:"+a.Weight.String())
		}
		again, _, err := parse(strings.Join(words, ",") + "#" + a.Reason)
		if err != nil || again != a {
			t.Errorf("%q: got %+v, and said again %+v, %v", line, a, again, err)
		}
	})
}
