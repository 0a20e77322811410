package smtpcheck

import (
	"bufio"
	"crypto/tls"
	"strings"
	"testing"

	"github.com/lbd-project/lbd/healthcheck/stream"
	"github.com/lbd-project/lbd/healthcheck/tlsopt"
	"github.com/lbd-project/lbd/internal/checktest"
)

// FuzzTalk has any bytes as all that a server says in a conversation. What is
// called healthy greeted, knew the probe and said goodbye, in the clear.
func FuzzTalk(f *testing.F) {
	f.Add([]byte("220 mx\r\n250-mx\r\n250 STARTTLS\r\n221 bye\r\n"), false, false)
	f.Add([]byte("220 mx\r\n500 what\r\n250 mx\r\n221\r\n"), false, false)
	f.Add([]byte("220 mx\r\n250-mx\r\n250 STARTTLS\r\n220 go\r\n\x16\x03\x03\x00\x02\x02\x00"), true, false)
	f.Add([]byte("220 mx\r\n250-mx\r\n250 starttls x\r\n220 go\r\n250 sneaked in\r\n"), true, false)
	f.Add([]byte("554 \x1b no\xff\r\n"), false, true)
	f.Fuzz(func(t *testing.T, said []byte, startTLS, secure bool) {
		k := &checker{check: Check{StartTLS: startTLS, TLS: &tlsopt.Options{}}, name: "lbd"}
		if startTLS || secure {
			k.config = &tls.Config{ServerName: "mx.example"}
		}
		conn := &stream.Conn{Conn: checktest.Canned(said)}
		s := &session{conn: conn, in: bufio.NewReaderSize(conn, maxLine)}
		r, err := k.talk(t.Context(), s)
		checktest.Shown(t, r.Detail)
		if err != nil {
			checktest.Shown(t, err.Error())
			return
		}
		// Nobody has the key of a certificate that this host trusts.
		if k.config != nil || !s.left || !strings.HasPrefix(string(said), "220") || !strings.Contains(string(said), "\n221") {
			t.Fatalf("%q is healthy", said)
		}
	})
}
