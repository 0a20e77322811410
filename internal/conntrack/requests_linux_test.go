package conntrack

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The tests of this file pin what docs/decisions/0007-request-signals.md says.

// signalRules keep a bit of the mark set while a request has no answer. The
// client's PSH sets it, the server's clears it, as does whatever ends the
// connection. UDP has only directions.
func signalRules(hook string) string {
	return ruleset(markThenEvents) + `
table inet signals {
	chain signals {
		type filter hook ` + hook + `
		ct mark & 0x0fffff00 == 0 return
		ct direction original ct mark & 0x20000000 == 0 tcp flags & psh != 0 ct mark set ct mark | 0x20000000
		ct direction reply ct mark & 0x20000000 != 0 tcp flags & (psh | fin | rst) != 0 ct mark set ct mark & 0xdfffffff
		ct direction original ct mark & 0x20000000 != 0 tcp flags & rst != 0 ct mark set ct mark & 0xdfffffff
		ct direction original ct mark & 0x20000000 == 0 meta l4proto udp ct mark set ct mark | 0x20000000
		ct direction reply ct mark & 0x20000000 != 0 meta l4proto udp ct mark set ct mark & 0xdfffffff
	}
}`
}

// The kinds of events of a TCP connection with signals.
const (
	asked    = "update 20000100"
	answered = "update 100"
	closed   = "update 10000100"
)

// serve answers each line of a connection as it says: "wait 50ms", "send TEXT",
// "big BYTES", "more" (wait until the client sends more, closes or resets), one
// step after the other, divided by semicolons. It sends the
// times between the line and the first byte sent to waits.
func (l *lab) serve(waits chan<- time.Duration) {
	ln := l.server.Listen("tcp", server4+":8080")
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				in := bufio.NewReader(c)
				for {
					line, err := in.ReadString('\n')
					if err != nil {
						return
					}
					start, sent := time.Now(), false
					for step := range strings.SplitSeq(strings.TrimSuffix(line, "\n"), ";") {
						verb, arg, _ := strings.Cut(step, " ")
						var out []byte
						switch verb {
						case "wait":
							d, _ := time.ParseDuration(arg)
							time.Sleep(d)
							continue
						case "send":
							out = []byte(arg + "\n")
						case "big":
							out = append(slices.Repeat([]byte("x"), 1<<20), '\n')
						case "more": // until the client says more, or that there is none
							in.Peek(1)
							continue
						case "close":
							return
						}
						if !sent && waits != nil {
							waits <- time.Since(start)
						}
						sent = true
						c.Write(out)
					}
				}
			}()
		}
	}()
}

// plain connects without saying anything.
func (l *lab) plain(network string) net.Conn {
	l.t.Helper()
	c, err := l.client.DialContext(l.t.Context(), network, vip4+":80")
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return c
}

// TestNetnsRequests: on a connection that is kept, each request makes one event
// at its start and one at its end, and their times differ by what the server
// waited.
func TestNetnsRequests(t *testing.T) {
	for _, hook := range []string{"forward priority 0", "prerouting priority -139"} {
		for _, wait := range []time.Duration{10 * time.Millisecond, 50 * time.Millisecond, 200 * time.Millisecond} {
			t.Run(fmt.Sprint(hook, wait), func(t *testing.T) {
				l := newLab(t)
				waits := make(chan time.Duration, 1)
				l.serve(waits)
				l.rules(signalRules(hook))
				l.lb.SetSysctl("net.netfilter.nf_conntrack_timestamp", "1")
				e := l.events(EventConfig{})
				c := l.plain("tcp")
				in := bufio.NewReader(c)
				for range 3 {
					start := time.Now()
					fmt.Fprintf(c, "wait %v;send done\n", wait)
					in.ReadString('\n')
					outer, inner := time.Since(start), <-waits
					got := l.await(e, func(got []Event) bool { return len(got) >= 2 })
					if diff := cmp.Diff([]string{asked, answered}, kinds(got)); diff != "" {
						t.Fatalf("(-want +got)\n%s", diff)
					}
					if got[0].At == 0 {
						continue // Before Linux 6.14 nothing in the event tells.
					}
					// The balancer is between the server and the client, its time too.
					if d := time.Duration(got[1].At - got[0].At); d < inner || d > outer {
						t.Errorf("want a time between the server's %v and the client's %v, got %v", inner, outer, d)
					}
				}
				c.Close()
				got := l.await(e, func(got []Event) bool { return len(got) >= 1 })
				if diff := cmp.Diff([]string{closed}, kinds(got)); diff != "" {
					t.Errorf("(-want +got)\n%s", diff)
				}
			})
		}
	}
}

// TestNetnsRequestsBlurred: what is seen of traffic that is not one request, one
// answer.
func TestNetnsRequestsBlurred(t *testing.T) {
	const wait = 20 * time.Millisecond
	read := func(c net.Conn, lines int) {
		in := bufio.NewReader(c)
		for range lines {
			in.ReadString('\n')
		}
	}
	for _, test := range []struct {
		name string
		talk func(c net.Conn)
		want []string
	}{
		{"an answer in three parts ends with the first", func(c net.Conn) {
			io.WriteString(c, "send 1;wait 20ms;send 2;wait 20ms;send 3\n")
			read(c, 3)
		}, []string{asked, answered}},
		{"a request in two parts begins with the first", func(c net.Conn) {
			io.WriteString(c, "wait 1ms;")
			time.Sleep(wait)
			io.WriteString(c, "send 1\n")
			read(c, 1)
		}, []string{asked, answered}},
		{"two requests at once are one", func(c net.Conn) {
			io.WriteString(c, "wait 20ms;send 1\nwait 20ms;send 2\n")
			read(c, 2)
		}, []string{asked, answered}},
		{"a request behind an unanswered one is not seen", func(c net.Conn) {
			io.WriteString(c, "more;send 1\n")
			time.Sleep(wait)
			io.WriteString(c, "wait 20ms;send 2\n")
			read(c, 2)
		}, []string{asked, answered}},
		{"what the server pushes later is not seen", func(c net.Conn) {
			io.WriteString(c, "send 1;wait 20ms;send 2\n")
			read(c, 2)
			io.WriteString(c, "send 3\n")
			read(c, 1)
		}, []string{asked, answered, asked, answered}},
		{"an answer of 1 MiB is one answer", func(c net.Conn) {
			io.WriteString(c, "big\n")
			read(c, 1)
		}, []string{asked, answered}},
		{"a request of 1 MiB is one request", func(c net.Conn) {
			io.WriteString(c, strings.Repeat("skip;", 1<<20/5)+"send 1\n")
			read(c, 1)
		}, []string{asked, answered}},
		{"a server that closes has answered", func(c net.Conn) {
			io.WriteString(c, "close\n")
			read(c, 1)
		}, []string{asked, closed}},
		{"a client that half closes still waits", func(c net.Conn) {
			io.WriteString(c, "more;send 1\n")
			c.(*net.TCPConn).CloseWrite()
			read(c, 2)
		}, []string{asked, "update 30000100", closed}},
		{"a client that resets waits no more", func(c net.Conn) {
			io.WriteString(c, "more;send 1\n")
			time.Sleep(wait)
			c.(*net.TCPConn).SetLinger(0)
			c.Close()
		}, []string{asked, closed}},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := newLab(t)
			l.serve(nil)
			l.rules(signalRules("forward priority 0"))
			e := l.events(EventConfig{})
			c := l.plain("tcp")
			test.talk(c)
			got := l.await(e, func(got []Event) bool { return len(got) >= len(test.want) })
			// Another request shows that nothing else came in between.
			last := got[len(got)-1]
			if last.Mark&0x10000000 == 0 {
				io.WriteString(c, "send end\n")
				read(c, 1)
				got = append(got, l.await(e, func(got []Event) bool { return len(got) >= 2 })...)
				test.want = append(test.want, asked, answered)
			} else {
				got = append(got, l.drain(e)...)
			}
			if diff := cmp.Diff(test.want, kinds(got)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// TestNetnsRequestsHTTP counts what is seen of HTTP. A handshake of TLS is a
// request more, and so is its goodbye; a connection with many requests at a time
// has one at most.
func TestNetnsRequestsHTTP(t *testing.T) {
	const requests = 5
	serial := func(get func()) {
		for range requests {
			get()
		}
	}
	parallel := func(get func()) {
		var wg sync.WaitGroup
		for range requests {
			wg.Go(get)
		}
		wg.Wait()
	}
	for _, test := range []struct {
		name, scheme string
		http2        bool
		run          func(get func())
		min, max     int
	}{
		{"1.1", "http", false, serial, requests, requests},
		{"1.1 with TLS", "https", false, serial, requests + 1, requests + 1},
		{"2, parallel", "https", true, parallel, 1, requests},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := newLab(t)
			l.rules(signalRules("prerouting priority -139"))
			e := l.events(EventConfig{})
			srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				time.Sleep(50 * time.Millisecond)
				io.WriteString(w, "done")
			}))
			srv.Listener.Close()
			srv.Listener = l.server.Listen("tcp", server4+":8080")
			srv.EnableHTTP2 = test.http2
			if test.scheme == "https" {
				srv.StartTLS()
			} else {
				srv.Start()
			}
			defer srv.Close()
			tr := &http.Transport{
				DialContext:     l.client.DialContext,
				TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: test.http2, MaxConnsPerHost: 1,
			}
			defer tr.CloseIdleConnections()
			client := &http.Client{Transport: tr, Timeout: patience}
			get := func() {
				resp, err := client.Get(test.scheme + "://" + vip4 + ":80/")
				if err != nil {
					t.Error(err)
					return
				}
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			test.run(get)
			// An answer has passed the balancer when the client has it.
			n := 0
			for _, k := range kinds(l.drain(e)) {
				if k == answered {
					n++
				}
			}
			if n < test.min || n > test.max {
				t.Errorf("%d requests: want %d to %d answers seen, got %d", requests, test.min, test.max, n)
			}
		})
	}
}

// TestNetnsQueries: a query over UDP begins with the client's datagram and ends
// with the server's. The first comes with the New of its flow.
func TestNetnsQueries(t *testing.T) {
	l := newLab(t)
	l.echo()
	l.rules(signalRules("forward priority 0"))
	e := l.events(EventConfig{})
	c := l.plain("udp")
	b := make([]byte, 16)
	for range 3 {
		io.WriteString(c, "query")
		c.Read(b)
	}
	want := []string{"new 20000100", answered, asked, answered, asked, answered}
	got := l.await(e, func(got []Event) bool { return len(got) >= len(want) })
	if diff := cmp.Diff(want, kinds(got)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
