package udpcheck

import (
	"bytes"
	"testing"

	"github.com/lbd-project/lbd/healthcheck/expect"
	"github.com/lbd-project/lbd/internal/checktest"
)

// FuzzJudge has any datagram as a reply. One that is taken has the length and the
// text, and what is wrong with another can be shown.
func FuzzJudge(f *testing.F) {
	f.Add([]byte("PONG\r\n"), uint16(1), uint16(0), "PONG", false)
	f.Add([]byte("\x00\xff\x1b[2J"), uint16(0), uint16(4), "", true)
	f.Add([]byte(nil), uint16(0), uint16(0), "x", true)
	f.Fuzz(func(t *testing.T, data []byte, least, most uint16, text string, not bool) {
		c := Check{MinReply: int(least), MaxReply: int(most), Expect: expect.Expect{Kind: expect.Text, Value: text, Negate: not}}
		m, err := c.Expect.Compile()
		if err != nil {
			return
		}
		before := bytes.Clone(data)
		err = c.judge(m, data)
		if !bytes.Equal(before, data) {
			t.Fatal("the reply was changed")
		}
		good := len(data) >= int(least) && (most == 0 || len(data) <= int(most)) &&
			len(data) > 0 && bytes.Contains(data, []byte(text)) != not
		if good != (err == nil) {
			t.Fatalf("%q: want good %v, got %v", data, good, err)
		}
		if err != nil {
			// What the operator wrote may be long.
			checktest.Shown(t, err.Error()[:min(len(err.Error()), 600)])
		}
	})
}
