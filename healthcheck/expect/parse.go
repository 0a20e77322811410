package expect

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Unescape returns the bytes that s writes: \r, \n, \t, \0, \\, \" and \xHH, and
// any other character for itself. It returns an error for other escapes, and for
// more than MaxValue bytes.
func Unescape(s string) ([]byte, error) {
	b := make([]byte, 0, min(len(s), MaxValue))
	for i := 0; i < len(s); i++ {
		if len(b) == MaxValue {
			return nil, fmt.Errorf("text is longer than %d bytes", MaxValue)
		}
		if s[i] != '\\' {
			b = append(b, s[i])
			continue
		}
		i++
		if i == len(s) {
			return nil, errors.New(`text ends with a single \: write \\`)
		}
		switch s[i] {
		case 'r':
			b = append(b, '\r')
		case 'n':
			b = append(b, '\n')
		case 't':
			b = append(b, '\t')
		case '0':
			b = append(b, 0)
		case '\\', '"':
			b = append(b, s[i])
		case 'x':
			digits := s[i+1 : min(i+3, len(s))]
			high, low, err := pair(digits)
			if err != nil || high < 0 || low < 0 {
				return nil, fmt.Errorf(`\x%s: want two hexadecimal digits after \x`, digits)
			}
			b = append(b, byte(high<<4|low))
			i += 2
		default:
			return nil, fmt.Errorf(`unknown escape \%c: known are \r \n \t \0 \\ \" \xHH`, rune(s[i]))
		}
	}
	return b, nil
}

// ParseHex returns the bytes that pairs of hexadecimal digits name, with blanks
// between pairs where one likes. It returns an error for X, which is for what is
// expected, and for more than MaxValue bytes.
func ParseHex(s string) ([]byte, error) {
	if strings.ContainsAny(s, "xX") {
		return nil, errors.New("a wildcard X is only for what is expected")
	}
	want, _, err := parsePattern(s)
	return want, err
}

// parsePattern reads hexadecimal digits with wildcards. A byte b matches the i-th
// pair if b&mask[i] == want[i]. It returns an error if there is none.
func parsePattern(s string) (want, mask []byte, err error) {
	for i := 0; i < len(s); {
		if c := s[i]; c == ' ' || c == '\t' || c == '\n' || c == '\r' {
			i++
			continue
		}
		if len(want) == MaxValue {
			return nil, nil, fmt.Errorf("hex is longer than %d bytes", MaxValue)
		}
		digits := s[i:min(i+2, len(s))]
		high, low, err := pair(digits)
		if err != nil {
			return nil, nil, fmt.Errorf("hex at character %d: %w", i+1, err)
		}
		var w, m byte
		if high >= 0 {
			w, m = byte(high)<<4, 0xf0
		}
		if low >= 0 {
			w, m = w|byte(low), m|0x0f
		}
		want, mask = append(want, w), append(mask, m)
		i += 2
	}
	if len(want) == 0 {
		return nil, nil, errors.New("hex has no digits")
	}
	return want, mask, nil
}

// pair reads two digits, each -1 for X.
func pair(s string) (high, low int, err error) {
	if len(s) != 2 {
		return 0, 0, fmt.Errorf("%s has one digit, want two for a byte", strconv.Quote(s))
	}
	if high, err = digit(s[0]); err == nil {
		low, err = digit(s[1])
	}
	return high, low, err
}

// digit reads one digit, -1 for X.
func digit(c byte) (int, error) {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0'), nil
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10, nil
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10, nil
	case c == 'x' || c == 'X':
		return -1, nil
	}
	return 0, fmt.Errorf("%q is no hexadecimal digit and not X", rune(c))
}
