package agentcheck

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/lbd-project/lbd/healthcheck"
)

// parse reads an agent's line. detail is the line, fit to be shown, with a note
// of words that are ignored.
func parse(line string) (a healthcheck.Advice, detail string, err error) {
	detail = healthcheck.Printable(line)
	if detail == "" {
		return healthcheck.Advice{}, "", errors.New("empty answer")
	}
	text, reason, _ := strings.Cut(line, "#")
	words := strings.FieldsFunc(text, func(c rune) bool { return c == ' ' || c == '\t' || c == ',' || c == '\r' })
	var ignored []string
	known := false
	for _, w := range words {
		word := strings.ToLower(w)
		taken := take(&a, word)
		known = known || taken || isMaxConn(word)
		if !taken {
			ignored = append(ignored, w)
		}
	}
	if !known {
		return healthcheck.Advice{}, "", fmt.Errorf("no word of an agent in %q", detail)
	}
	a.Reason = healthcheck.Printable(reason)
	if len(ignored) > 0 {
		// The note goes first, because who shows the detail may cut it.
		detail = fmt.Sprintf("ignored %s: %s", healthcheck.Printable(strings.Join(ignored, " ")), detail)
	}
	return a, detail, nil
}

// take puts the meaning of a word into a and reports whether it has one.
func take(a *healthcheck.Advice, word string) bool {
	switch word {
	case "up":
		a.Health = healthcheck.SaysUp
	case "down", "fail", "failed", "stopped":
		a.Health = healthcheck.SaysDown
	case "ready":
		a.Admin = healthcheck.SaysReady
	case "drain":
		a.Admin = healthcheck.SaysDrain
	case "maint":
		a.Admin = healthcheck.SaysMaint
	default:
		return takeNumber(a, word)
	}
	return true
}

// takeNumber does what take does for the words with a number.
func takeNumber(a *healthcheck.Advice, word string) bool {
	n, absolute := strings.CutPrefix(word, "weight:")
	w := healthcheck.Weight{Kind: healthcheck.WeightAbsolute}
	if percent, ok := strings.CutSuffix(n, "%"); ok {
		n, w.Kind = percent, healthcheck.WeightPercent
	} else if !absolute {
		return false
	}
	// ParseUint takes no sign and, in base 10, no underscores.
	value, err := strconv.ParseUint(n, 10, 32)
	if err != nil || value > healthcheck.MaxWeight {
		return false
	}
	w.Value = uint32(value)
	a.Weight = w
	return true
}

// isMaxConn says whether a word is a limit of connections, which agents may send but
// lbd does not follow.
func isMaxConn(word string) bool {
	n, ok := strings.CutPrefix(word, "maxconn:")
	_, err := strconv.ParseUint(n, 10, 64)
	return ok && err == nil
}
