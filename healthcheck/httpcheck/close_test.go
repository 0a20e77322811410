package httpcheck

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// TestGoodbye has the server see the end of every kind of check without an error:
// close_notify where there is TLS, and then a FIN.
func TestGoodbye(t *testing.T) {
	options, cert := secure(t)
	for _, serverCloses := range []bool{true, false} {
		for _, overTLS := range []bool{false, true} {
			ends := make(chan error, 2)
			to := raw(t, func(c net.Conn) {
				conn, answer := c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
				if overTLS {
					conn = tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert.TLS}})
				}
				r := bufio.NewReader(conn)
				http.ReadRequest(r)
				io.WriteString(conn, answer)
				if serverCloses {
					if s, ok := conn.(*tls.Conn); ok {
						s.CloseWrite()
					}
					c.(*net.TCPConn).CloseWrite()
				}
				_, err := r.ReadByte()
				ends <- err
				_, err = c.Read(make([]byte, 1))
				ends <- err
			})
			c := Check{}
			if overTLS {
				c.TLS = options
			}
			if _, err := run(t, c, to); err != nil {
				t.Fatal(err)
			}
			for i, what := range []string{"end of the data", "end of the connection"} {
				if err := <-ends; !errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
					t.Errorf("server closes %v, TLS %v: %s is %v (%d)", serverCloses, overTLS, what, err, i)
				}
			}
		}
	}
}

// TestNoWait does not wait for a server that does not say that it closes.
func TestNoWait(t *testing.T) {
	hold := make(chan struct{})
	defer close(hold)
	to := raw(t, func(c net.Conn) {
		readRequest(c)
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		<-hold
	})
	// One that is as fast will do: a busy machine takes as long for others.
	best := time.Hour
	for tries := time.Now(); best > 150*time.Millisecond && time.Since(tries) < 30*time.Second; {
		begun := time.Now()
		if _, err := run(t, Check{}, to); err != nil {
			t.Fatal(err)
		}
		best = min(best, time.Since(begun))
	}
	if best > 150*time.Millisecond {
		t.Errorf("the best of many checks took %v", best)
	}
}
