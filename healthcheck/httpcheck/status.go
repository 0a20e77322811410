package httpcheck

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// The lowest and the greatest status that there is.
const (
	minStatus = 100
	maxStatus = 599
)

// StatusRange is a range of status codes, both ends included.
type StatusRange struct{ Min, Max int }

// StatusRanges are the status codes that an answer may have, within 100 to 599.
// Nil is 200-299. Of 1xx only 101 can be an answer; others come before it.
type StatusRanges []StatusRange

// defaultStatus is what nil means.
var defaultStatus = StatusRanges{{200, 299}}

// ParseStatusRanges reads a list such as "200-299, 404, 3xx".
func ParseStatusRanges(s string) (StatusRanges, error) {
	var ranges StatusRanges
	for item := range strings.SplitSeq(s, ",") {
		item = strings.TrimSpace(item)
		low, high, dash := strings.Cut(item, "-")
		if class, ok := strings.CutSuffix(strings.ToLower(item), "xx"); ok && len(class) == 1 {
			low, high = class+"00", class+"99"
		} else if !dash {
			high = low
		}
		r, err := parseRange(strings.TrimSpace(low), strings.TrimSpace(high))
		if err != nil {
			return nil, fmt.Errorf("status %q: %w", item, err)
		}
		ranges = append(ranges, r)
	}
	return ranges, ranges.validate()
}

func parseRange(low, high string) (r StatusRange, err error) {
	if len(low) != 3 || len(high) != 3 {
		return r, errors.New("want a code such as 200, a range such as 200-299 or a class such as 2xx")
	}
	lowest, err := strconv.ParseUint(low, 10, 16)
	if err != nil {
		return r, err
	}
	highest, err := strconv.ParseUint(high, 10, 16)
	return StatusRange{int(lowest), int(highest)}, err
}

func (s StatusRanges) validate() error {
	for _, r := range s {
		switch {
		case r.Min < minStatus || r.Max > maxStatus:
			return fmt.Errorf("status %v is not within %d to %d", r, minStatus, maxStatus)
		case r.Min > r.Max:
			return fmt.Errorf("status %v ends before it begins", r)
		}
	}
	return nil
}

// Contain reports whether an answer may have the status.
func (s StatusRanges) Contain(status int) bool {
	if s == nil {
		s = defaultStatus
	}
	for _, r := range s {
		if r.Min <= status && status <= r.Max {
			return true
		}
	}
	return false
}

// String prints the form that ParseStatusRanges reads, such as "200-299,404".
func (s StatusRanges) String() string {
	if s == nil {
		s = defaultStatus
	}
	text := make([]string, len(s))
	for i, r := range s {
		text[i] = r.String()
	}
	return strings.Join(text, ",")
}

// String prints "200" or "200-299".
func (r StatusRange) String() string {
	if r.Min == r.Max {
		return strconv.Itoa(r.Min)
	}
	return fmt.Sprintf("%d-%d", r.Min, r.Max)
}
