package api

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// Options are what a server can be told. The zero value works.
type Options struct {
	// Logger gets writes with their peer (Info), refused peers (Warn) and panics
	// (Error); nil discards.
	Logger *slog.Logger
	// Allow says who may use the API; nil is AllowGroup(0). A peer whose
	// credentials cannot be read is refused without asking.
	Allow func(Peer) bool
}

// Server serves the control API.
type Server struct {
	backend Backend
	log     *slog.Logger
	allow   func(Peer) bool
	limits  limits
	// files holds a token for each request with a file that is being served.
	files chan struct{}
	// streams holds a token for each stream of connections.
	streams chan struct{}
	// followers holds one for each reader of events, stopping is closed when the
	// server stops.
	followers chan struct{}
	stopping  <-chan struct{}
}

// limits bound what one client can take of the daemon.
type limits struct {
	// files are the requests with a file that are served at once, streams those of
	// connections.
	// followers are the readers of events.
	conns, files, streams, followers int
	body                             int64
	// header, read and write are the time for the header, the whole request and
	// everything up to the end of the answer; handle is the backend's share.
	header, read, write, handle time.Duration
	// stream is the time for a whole stream, stall how long its client may take
	// nothing of it, ahead how many bytes may wait for that.
	stream, stall time.Duration
	ahead         int
	// heartbeat is the longest silence of a stream that waits for events.
	heartbeat time.Duration
	// grace is how long a stop waits for answers in flight.
	grace time.Duration
}

var defaultLimits = limits{
	conns:     64,
	files:     2,
	streams:   4,
	followers: 16,
	heartbeat: 5 * time.Second,
	body:      16 << 20,
	header:    5 * time.Second,
	read:      15 * time.Second,
	write:     90 * time.Second,
	handle:    time.Minute,
	stream:    10 * time.Minute,
	stall:     30 * time.Second,
	ahead:     16 << 20,
	grace:     time.Second,
}

// NewServer returns a server that asks and tells the backend.
func NewServer(b Backend, o Options) *Server {
	s := &Server{backend: b, log: o.Logger, allow: o.Allow, limits: defaultLimits}
	s.files = make(chan struct{}, s.limits.files)
	s.streams = make(chan struct{}, s.limits.streams)
	s.followers = make(chan struct{}, s.limits.followers)
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.allow == nil {
		s.allow = AllowGroup(0)
	}
	return s
}

// Run serves on l until ctx ends, then gives answers in flight a second, and
// returns when the last of its goroutines has ended. It closes l. The error is
// nil after ctx ended.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	// Requests outlive ctx by the grace period and no more.
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	s.stopping = ctx.Done() // readers of events would take up the grace period
	var conns sync.WaitGroup
	srv := &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: s.limits.header,
		ReadTimeout:       s.limits.read,
		WriteTimeout:      s.limits.write,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
		BaseContext:       func(net.Listener) context.Context { return base },
		ConnContext:       s.connContext,
		// OPTIONS * would be answered past the handler.
		DisableGeneralOptionsHandler: true,
		ConnState: func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				conns.Add(1)
			case http.StateClosed, http.StateHijacked:
				conns.Done()
			}
		},
	}
	// One request a connection: a client holds its slot for a bounded time.
	srv.SetKeepAlivesEnabled(false)

	served := make(chan error, 1)
	go func() { served <- srv.Serve(newLimitListener(l, s.limits.conns)) }()
	var err error
	ended := false
	select {
	case err = <-served:
		ended = true
	case <-ctx.Done():
	}
	grace, stop := context.WithTimeout(base, s.limits.grace)
	defer stop()
	if srv.Shutdown(grace) != nil {
		srv.Close()
	}
	cancel()
	if !ended {
		<-served
	}
	if ctx.Err() != nil {
		err = nil
	}
	conns.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// connContext puts the peer of a connection into the context of its requests.
func (s *Server) connContext(ctx context.Context, c net.Conn) context.Context {
	if lc, ok := c.(*limitConn); ok {
		c = lc.Conn
	}
	uc, ok := c.(*net.UnixConn)
	if !ok {
		return ctx
	}
	peer, err := readPeer(uc)
	if err != nil {
		s.log.Warn("control socket: unknown peer", "err", err)
		return ctx
	}
	return context.WithValue(ctx, peerKey{}, peer)
}
