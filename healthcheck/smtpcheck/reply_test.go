package smtpcheck

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/internal/checktest"
)

func read(s string) (reply, string) {
	r, err := readReply(bufio.NewReaderSize(iotest.OneByteReader(strings.NewReader(s)), maxLine))
	return r, checktest.Text(err)
}

func TestReadReply(t *testing.T) {
	many := strings.Repeat("250-x\r\n", maxLines-1) + "250 y\r\n"
	tests := []struct {
		text  string
		code  int
		lines string // joined with "|"
		want  string
	}{
		{"220 mx.example ESMTP\r\n", 220, "mx.example ESMTP", ""},
		{"250-mx\r\n250-SIZE 10\r\n250 STARTTLS\r\n", 250, "mx|SIZE 10|STARTTLS", ""},
		{"221\r\n", 221, "", ""},
		{"250-\r\n250 \r\n", 250, "|", ""},
		{"220 bare line feed\n", 220, "bare line feed", ""},
		{many, 250, strings.Repeat("x|", maxLines-1) + "y", ""},
		{"220 a\r\n250 not this one\r\n", 220, "a", ""},
		{"", 0, "", "EOF"},
		{"220 a", 0, "", "the reply ends in the middle: unexpected EOF"},
		{"250-a\r\n", 0, "", "the reply ends in the middle: unexpected EOF"},
		{"250-a\r\n550 b\r\n", 0, "", "a reply with the codes 250 and 550"},
		{"250-a\r\n220-b\r\n250 c\r\n", 0, "", "a reply with the codes 250 and 220"},
		{"250-x\r\n" + many, 0, "", "a reply of more than 128 lines"},
		{strings.Repeat("250-x\r\n", 1000000), 0, "", "a reply of more than 128 lines"},
		{"220 " + strings.Repeat("x", maxLine), 0, "", `a line of the reply is longer than 2048 bytes: "220 ` + strings.Repeat("x", 96) + `…"`},
		{"SSH-2.0-OpenSSH_9\r\n", 0, "", `not a reply of SMTP: "SSH-2.0-OpenSSH_9"`},
		{"22\r\n", 0, "", `not a reply of SMTP: "22"`},
		{"\r\n", 0, "", `not a reply of SMTP: ""`},
		{"220+a\r\n", 0, "", `not a reply of SMTP: "220+a"`},
		{"120 a\r\n", 0, "", `not a reply of SMTP: "120 a"`},
		{"600 a\r\n", 0, "", `not a reply of SMTP: "600 a"`},
		{"2x0 \x1b[31m\r\n", 0, "", `not a reply of SMTP: "2x0 ?[31m"`},
	}
	for _, tt := range tests {
		r, err := read(tt.text)
		want := fmt.Sprint(tt.code, " ", tt.lines, " ", tt.want)
		if got := fmt.Sprint(r.code, " ", strings.Join(r.lines, "|"), " ", err); got != want {
			t.Errorf("%.60q (-want +got):\n%s", tt.text, cmp.Diff(want, got))
		}
	}
}

func TestOffers(t *testing.T) {
	r, _ := read("250-STARTTLS.example greets\r\n250-SIZE 10\r\n250 StartTLS\r\n")
	for keyword, want := range map[string]bool{"STARTTLS": true, "SIZE": true, "10": false, "SIZE 10": false, "STARTTLS.example": false} {
		if got := r.offers(keyword); got != want {
			t.Errorf("%s: want %v, got %v", keyword, want, got)
		}
	}
	// The first line is a greeting.
	if r, _ := read("250 STARTTLS\r\n"); r.offers("STARTTLS") {
		t.Error("the greeting counts as an extension")
	}
}

// FuzzReadReply reads replies one after the other: whatever is read can be
// written in the canonical form, and read again as the same.
func FuzzReadReply(f *testing.F) {
	f.Add([]byte("220 a\r\n250-b\r\n250 c\r\n"))
	f.Add([]byte("221\r\n500-\n500 \xff\r\n"))
	f.Add([]byte("250-a\r\n251 b\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		br := bufio.NewReaderSize(bytes.NewReader(b), maxLine)
		for {
			r, err := readReply(br)
			if err != nil {
				if r.code != 0 || r.lines != nil || err == io.EOF && br.Buffered() > 0 {
					t.Fatalf("got %+v with error %v", r, err)
				}
				return
			}
			if r.code < 200 || r.code > 599 || len(r.lines) < 1 || len(r.lines) > maxLines || len(r.String()) > 250 {
				t.Fatalf("got %+v", r)
			}
			r.offers("STARTTLS")
			var again strings.Builder
			for i, l := range r.lines {
				separator := "-"
				if i == len(r.lines)-1 {
					separator = " "
				}
				fmt.Fprintf(&again, "%d%s%s\r\n", r.code, separator, l)
			}
			// The canonical form may be one byte longer than what was read.
			second, err := readReply(bufio.NewReaderSize(strings.NewReader(again.String()), maxLine+2))
			if diff := cmp.Diff(r.lines, second.lines); diff != "" || err != nil {
				t.Fatalf("%v, (-first +second):\n%s", err, diff)
			}
		}
	})
}
