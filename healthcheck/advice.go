package healthcheck

import (
	"fmt"
	"strconv"
	"strings"
)

// Advice is what a target says of itself, beyond healthy or not: the words of an
// agent, the exit code of a script, the number in a file. The zero value says
// nothing. Advice is comparable.
type Advice struct {
	// Weight is the weight that the target asks for.
	Weight Weight
	// Health is NoVerdict, SaysUp or SaysDown.
	Health Verdict
	// Admin is NoVerdict, SaysReady, SaysDrain or SaysMaint.
	Admin Verdict
	// Reason is the target's own words, as Printable returns them.
	Reason string
}

// WeightKind is how a Weight is meant.
type WeightKind uint8

// The kinds of a Weight.
const (
	// WeightNone says nothing of the weight.
	WeightNone WeightKind = iota
	// WeightAbsolute is a weight as the kernel takes it.
	WeightAbsolute
	// WeightPercent is a part of the configured weight, in percent; it may be
	// more than 100.
	WeightPercent
	// WeightMore and WeightLess are added to the configured weight, or taken from
	// it.
	WeightMore
	WeightLess
)

// MaxWeight is the greatest Value of a Weight, in any kind.
const MaxWeight = 65535

// Weight is a weight that a target asks for. The zero value is none.
type Weight struct {
	Kind WeightKind
	// Value is 0..MaxWeight.
	Value uint32
}

// String prints "300", "50%", "+5", "-5", or nothing for WeightNone.
func (w Weight) String() string {
	switch w.Kind {
	case WeightNone:
		return ""
	case WeightPercent:
		return strconv.FormatUint(uint64(w.Value), 10) + "%"
	case WeightMore:
		return "+" + strconv.FormatUint(uint64(w.Value), 10)
	case WeightLess:
		return "-" + strconv.FormatUint(uint64(w.Value), 10)
	}
	return strconv.FormatUint(uint64(w.Value), 10)
}

// MarshalText implements encoding.TextMarshaler with the form of String.
func (w Weight) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// UnmarshalText parses the form of String.
func (w *Weight) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*w = Weight{}
		return nil
	}
	kind, digits := WeightAbsolute, string(text)
	if before, ok := strings.CutSuffix(digits, "%"); ok {
		kind, digits = WeightPercent, before
	} else if after, ok := strings.CutPrefix(digits, "+"); ok {
		kind, digits = WeightMore, after
	} else if after, ok := strings.CutPrefix(digits, "-"); ok {
		kind, digits = WeightLess, after
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil || n > MaxWeight {
		return fmt.Errorf("unknown weight %.20q", text)
	}
	*w = Weight{kind, uint32(n)}
	return nil
}

// Verdict is a word of a target about itself.
type Verdict uint8

// The verdicts. An agent's fail and stopped are SaysDown too.
const (
	NoVerdict Verdict = iota
	SaysUp
	SaysDown
	SaysReady
	SaysDrain
	SaysMaint
)

var verdictNames = [...]string{NoVerdict: "", SaysUp: "up", SaysDown: "down", SaysReady: "ready", SaysDrain: "drain", SaysMaint: "maint"}

// String prints the word, "" for NoVerdict, or the number.
func (v Verdict) String() string {
	if int(v) < len(verdictNames) {
		return verdictNames[v]
	}
	return strconv.Itoa(int(v))
}

// MarshalText implements encoding.TextMarshaler with the form of String.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText parses the form of String.
func (v *Verdict) UnmarshalText(text []byte) error {
	for i, name := range verdictNames {
		if name == string(text) {
			*v = Verdict(i)
			return nil
		}
	}
	return fmt.Errorf("unknown verdict %q", text)
}

// merge returns a with each kind of word replaced that next says. The reason
// stays with the words that it explains.
func (a Advice) merge(next Advice) Advice {
	if next.Weight.Kind != WeightNone {
		a.Weight = next.Weight
	}
	if next.Health != NoVerdict {
		a.Health = next.Health
	}
	if next.Admin != NoVerdict {
		a.Admin = next.Admin
	}
	if next.Reason != "" || next.Health != NoVerdict || next.Admin != NoVerdict {
		a.Reason = next.Reason
	}
	return a
}

// clean returns a without what its fields may not hold.
func (a Advice) clean() Advice {
	a.Weight.Value = min(a.Weight.Value, MaxWeight)
	if a.Weight.Kind == WeightNone || a.Weight.Kind > WeightLess {
		a.Weight = Weight{}
	}
	if a.Health != SaysUp && a.Health != SaysDown {
		a.Health = NoVerdict
	}
	if a.Admin != SaysReady && a.Admin != SaysDrain && a.Admin != SaysMaint {
		a.Admin = NoVerdict
	}
	a.Reason = Printable(a.Reason)
	return a
}
