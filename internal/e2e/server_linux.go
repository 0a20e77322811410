package e2e

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/internal/netnstest"
)

// The ports of a Server.
const (
	HTTPPort = 80
	// HealthPort is HTTP too: a check that uses it can fail while HTTPPort serves.
	HealthPort = 8080
	// HTTPSPort serves from the first Certify on.
	HTTPSPort = 443
	UDPPort   = 53
	// AgentPort has an agent once the Server Says something.
	AgentPort = 9707
)

// Server is a real server. Over HTTP it answers
//
//	/                          with its name
//	/slow?for=DURATION         with its name, after a while
//	/hold                      with its name, and keeps the connection open
//	/download?bytes=N&gate=G   with N bytes of Content, the second half of them
//	                           after the gate G of the Lab opened
//	/download?bytes=N&rate=R   with N bytes of Content, R a second
//
// and each UDP packet with its name.
type Server struct {
	Name   string
	NS     *netnstest.NS
	V4, V6 netip.Addr

	lab       *Lab
	http      *http.Server
	mu        sync.Mutex
	listeners map[uint16]net.Listener
	// cert is the certificate of HTTPSPort.
	cert atomic.Pointer[tls.Certificate]
	// limit is guarded by itself: Kill holds mu while it waits for connections
	// that arrive.
	limit struct {
		sync.Mutex
		// most is how many of the last arrivals it stands, 0 for any number; fell
		// is how often it had more.
		most, fell int
	}
}

func newServer(l *Lab, i int) *Server {
	s := &Server{
		Name:      fmt.Sprintf("s%d", i+1),
		NS:        netnstest.New(l.t),
		V4:        serverAddr(serverBack4, i),
		V6:        serverAddr(serverBack6, i),
		lab:       l,
		listeners: make(map[uint16]net.Listener),
	}
	l.t.Cleanup(s.Kill)
	return s
}

// handler makes a server for a life of the Server.
func (s *Server) handler() *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, s.Name)
	})
	mux.HandleFunc("GET /slow", s.slow)
	mux.HandleFunc("GET /hold", s.hold)
	mux.HandleFunc("GET /download", s.download)
	return &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, ConnState: func(c net.Conn, state http.ConnState) {
		if a, ok := c.LocalAddr().(*net.TCPAddr); ok && state == http.StateNew && a.Port == HTTPPort {
			s.arrived()
		}
	}}
}

// Open accepts connections on a port, of the servers' addresses and the VIPs.
func (s *Server) Open(port uint16) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listeners[port] != nil {
		return
	}
	ln := s.NS.Listen("tcp", fmt.Sprintf(":%d", port))
	s.listeners[port] = ln
	if s.http == nil {
		s.http = s.handler()
	}
	served := ln
	if port == HTTPSPort {
		served = tls.NewListener(ln, &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return s.cert.Load(), nil
		}})
	}
	// It returns when Refuse or Kill closes ln.
	go s.http.Serve(served)
}

// Certify serves HTTPS, on HTTPSPort, with this certificate from now on.
func (s *Server) Certify(c tls.Certificate) {
	s.cert.Store(&c)
	s.Open(HTTPSPort)
}

// Refuse refuses connections on a port; those that exist go on.
func (s *Server) Refuse(port uint16) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ln := s.listeners[port]; ln != nil {
		stopListening(ln)
		delete(s.listeners, port)
	}
}

// Say starts an agent that answers everybody with a line.
func (s *Server) Say(line string) {
	s.Refuse(AgentPort)
	s.mu.Lock()
	defer s.mu.Unlock()
	ln := s.NS.Listen("tcp", fmt.Sprintf(":%d", AgentPort))
	s.listeners[AgentPort] = ln
	accept(ln, func(c net.Conn) { fmt.Fprintln(c, line) })
}

// accept has talk answer each connection until the listener closes.
func accept(ln net.Listener, talk func(net.Conn)) {
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				talk(c)
			}()
		}
	}()
}

// Kill ends all HTTP connections and refuses new ones, as if the server's
// program had died. Open starts it again.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ln := range s.listeners {
		stopListening(ln) // http may not serve it yet
	}
	if s.http != nil {
		s.http.Close()
	}
	s.http = nil
	clear(s.listeners)
}

// stopListening has connections refused from here on. Closing the socket alone would
// not do: a program that is being started, such as the nft of another scenario, has a
// copy of it until it executes.
func stopListening(ln net.Listener) {
	if raw, err := ln.(*net.TCPListener).SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) })
	}
	ln.Close()
}

// Unplug takes the server off the network: nothing answers any more.
func (s *Server) Unplug() { s.lab.hub.Down(s.Name) }

// Plug undoes Unplug.
func (s *Server) Plug() { s.lab.hub.Up(s.Name) }

func (s *Server) slow(w http.ResponseWriter, r *http.Request) {
	d, err := time.ParseDuration(r.FormValue("for"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	select {
	case <-time.After(d):
		fmt.Fprintln(w, s.Name)
	case <-r.Context().Done():
	}
}

func (s *Server) hold(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintln(w, s.Name)
	http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

func (s *Server) download(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.ParseInt(r.FormValue("bytes"), 10, 64)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
	w.Header().Set("X-Server", s.Name)
	content := Content(n)
	if rate, err := strconv.ParseInt(r.FormValue("rate"), 10, 64); err == nil && rate > 0 {
		pace(w, r, content, rate)
		return
	}
	if _, err := io.CopyN(w, content, n/2); err != nil {
		return
	}
	http.NewResponseController(w).Flush()
	select {
	case <-s.lab.gate(r.FormValue("gate")):
		io.Copy(w, content)
	case <-r.Context().Done():
	}
}

// pace writes in twenty pieces a second.
func pace(w http.ResponseWriter, r *http.Request, content io.Reader, rate int64) {
	const pieces = 20
	tick := time.NewTicker(time.Second / pieces)
	defer tick.Stop()
	for {
		if _, err := io.CopyN(w, content, max(rate/pieces, 1)); err != nil {
			return // the end of the content, or the client left
		}
		http.NewResponseController(w).Flush()
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		}
	}
}

// openUDP answers on one address: a socket of all addresses would answer from
// the wrong one where the server has a VIP.
func (s *Server) openUDP(addr netip.Addr) {
	s.datagrams(netip.AddrPortFrom(addr, UDPPort), func([]byte) string { return s.Name })
}

// datagrams answers what comes to an address of UDP, unless the answer is empty.
func (s *Server) datagrams(addr netip.AddrPort, answer func(ask []byte) string) {
	pc := s.NS.ListenPacket("udp", addr.String())
	go func() {
		b := make([]byte, 2048)
		for {
			n, from, err := pc.ReadFrom(b)
			if err != nil {
				return
			}
			if a := answer(b[:n]); a != "" {
				pc.WriteTo([]byte(a), from)
			}
		}
	}()
}
