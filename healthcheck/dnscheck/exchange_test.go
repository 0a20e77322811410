package dnscheck

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/internal/checktest"
)

// FuzzExchange has any bytes as what a server sends over TCP: messages with their
// length, of which others than the reply are ignored.
func FuzzExchange(f *testing.F) {
	good := "1234 8180 0001 0001 0000 0000" + askA + answerA
	length := hex.EncodeToString([]byte{0, byte(len(fromHex(f, good)))})
	for _, s := range []string{
		length + good, "0000" + length + good, "0002 1234" + length + good, length + good[:40], length, "00", "ffff" + good,
		length + strings.Replace(good, "1234", "1235", 1) + length + good,
	} {
		f.Add(fromHex(f, s))
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		r, err := exchange(&stream{conn: checktest.Canned(sent)}, ask)
		if err != nil {
			checktest.Shown(t, err.Error())
			if !cmp.Equal(r, reply{}, cmp.AllowUnexported(reply{})) {
				t.Fatalf("got %+v beside error %v", r, err)
			}
			return
		}
		// One message of it is the reply, and read by itself it says the same.
		for rest := sent; len(rest) >= 2; {
			n := int(rest[0])<<8 | int(rest[1])
			if len(rest) < 2+n {
				break
			}
			one, err := parseReply(rest[2:2+n], ask)
			var foreign notOurs
			if !errors.As(err, &foreign) {
				if err != nil || one.rcode != r.rcode || one.truncated != r.truncated || len(one.records) != len(r.records) {
					t.Fatalf("want %+v, %v, got %+v", one, err, r)
				}
				return
			}
			rest = rest[2+n:]
		}
		t.Fatalf("no message of %x is the reply %+v", sent, r)
	})
}
