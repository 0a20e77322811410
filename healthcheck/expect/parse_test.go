package expect

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestUnescape(t *testing.T) {
	tests := []struct {
		text, want, err string
	}{
		{"", "", ""},
		{"PING\\r\\n", "PING\r\n", ""},
		{`a\t\0\\\"\x0A\xfFé`, "a\t\x00\\\"\n\xffé", ""},
		{`\`, "", `text ends with a single \: write \\`},
		{`\q`, "", `unknown escape \q: known are \r \n \t \0 \\ \" \xHH`},
		{`\x1`, "", `\x1: want two hexadecimal digits after \x`},
		{`\x1g`, "", `\x1g: want two hexadecimal digits after \x`},
		{`\xXX`, "", `\xXX: want two hexadecimal digits after \x`},
		{strings.Repeat("a", MaxValue+1), "", "text is longer than 4096 bytes"},
	}
	for _, tt := range tests {
		b, err := Unescape(tt.text)
		if diff := cmp.Diff(tt.want+"|"+tt.err, string(b)+"|"+text(err)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tt.text, diff)
		}
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestParseHex(t *testing.T) {
	tests := []struct {
		text, want, err string
	}{
		{"00 ff\n0A1b", "\x00\xff\x0a\x1b", ""},
		{"", "", "hex has no digits"},
		{"0X", "", "a wildcard X is only for what is expected"},
		{"0", "", `hex at character 1: "0" has one digit, want two for a byte`},
		{strings.Repeat("00", MaxValue+1), "", "hex is longer than 4096 bytes"},
	}
	for _, tt := range tests {
		b, err := ParseHex(tt.text)
		if diff := cmp.Diff(tt.want+"|"+tt.err, string(b)+"|"+text(err)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tt.text, diff)
		}
	}
}

// FuzzParsePattern writes what was read again and reads that.
func FuzzParsePattern(f *testing.F) {
	f.Add("00 fF Xx 1x")
	f.Fuzz(func(t *testing.T, s string) {
		want, mask, err := parsePattern(s)
		if err != nil {
			if want != nil || mask != nil {
				t.Fatalf("%q: got %x/%x with error %v", s, want, mask, err)
			}
			return
		}
		var again strings.Builder
		for i := range want {
			digits := fmt.Sprintf("%02x", want[i])
			if mask[i]&0xf0 == 0 {
				digits = "x" + digits[1:]
			}
			if mask[i]&0x0f == 0 {
				digits = digits[:1] + "x"
			}
			again.WriteString(digits)
		}
		if got := strings.ToLower(strings.Join(strings.Fields(s), "")); got != again.String() {
			t.Fatalf("%q: read as %q", s, again.String())
		}
		w, m, err := parsePattern(again.String())
		if err != nil || !bytes.Equal(w, want) || !bytes.Equal(m, mask) {
			t.Fatalf("%q: got %x/%x, then %x/%x, %v", s, want, mask, w, m, err)
		}
	})
}

// FuzzUnescape escapes every byte of what it got and reads that.
func FuzzUnescape(f *testing.F) {
	f.Add(`a\r\n\x00\\`)
	f.Fuzz(func(t *testing.T, s string) {
		b, err := Unescape(s)
		if err != nil {
			if b != nil {
				t.Fatalf("%q: got %q with error %v", s, b, err)
			}
			return
		}
		var again strings.Builder
		for _, c := range b {
			fmt.Fprintf(&again, `\x%02x`, c)
		}
		if got, err := Unescape(again.String()); err != nil || !bytes.Equal(got, b) {
			t.Fatalf("%q: got %q, then %q, %v", s, b, got, err)
		}
	})
}
