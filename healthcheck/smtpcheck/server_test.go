package smtpcheck

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// server is a mail server that answers as told, and remembers.
type server struct {
	// greeting and answers, by the first word of a command, are sent as they
	// are; an empty answer is none.
	greeting string
	answers  map[string]string
	// config is for STARTTLS, and from the start if implicit.
	config   *tls.Config
	implicit bool

	mu sync.Mutex
	// heard are the commands of the last connection, then how it ended.
	heard []string
}

// mail returns a server that does all that is asked of it, but for changes: pairs
// of a command, or "greeting", and its answer.
func mail(changes ...string) *server {
	s := &server{greeting: "220 mx.example ESMTP\r\n", answers: map[string]string{
		"EHLO": "250-mx.example\r\n250-SIZE 1000\r\n250 STARTTLS\r\n",
		"HELO": "250 mx.example\r\n", "STARTTLS": "220 go on\r\n", "QUIT": "221 bye\r\n",
	}}
	for i := 0; i < len(changes); i += 2 {
		if changes[i] == "greeting" {
			s.greeting = changes[i+1]
		} else {
			s.answers[changes[i]] = changes[i+1]
		}
	}
	return s
}

// over has the server know TLS.
func (s *server) over(config *tls.Config) *server {
	s.config = config
	return s
}

// fromStart has the server speak nothing but TLS.
func (s *server) fromStart() *server {
	s.implicit = true
	return s
}

func (s *server) note(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = append(s.heard, text)
}

// heardAll returns all commands, with " | " in between.
func (s *server) heardAll() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.heard, " | ")
}

// serve closes the connection after the answer 221, as servers do.
func (s *server) serve(c net.Conn) {
	s.mu.Lock()
	s.heard = nil
	s.mu.Unlock()
	if s.implicit {
		c = tls.Server(c, s.config)
	}
	io.WriteString(c, s.greeting)
	for br := bufio.NewReader(c); ; {
		line, err := br.ReadString('\n')
		if err != nil {
			s.note(err.Error())
			return
		}
		line = strings.TrimSuffix(line, "\r\n")
		s.note(line)
		word, _, _ := strings.Cut(line, " ")
		answer := s.answers[word]
		if word == "QUIT" && strings.HasPrefix(answer, "221") {
			io.WriteString(c, answer)
			// The client is in no hurry to close first.
			time.Sleep(5 * time.Millisecond)
			if t, ok := c.(*tls.Conn); ok {
				t.Close()
			}
			return
		}
		io.WriteString(c, answer)
		if word == "STARTTLS" && strings.HasPrefix(answer, "220") {
			t := tls.Server(c, s.config)
			if err := t.Handshake(); err != nil {
				s.note("no handshake")
				return
			}
			s.note("TLS")
			c, br = t, bufio.NewReader(t)
		}
	}
}
