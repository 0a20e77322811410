package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// requestTimeout bounds one request; under emulation a busy second is long.
const requestTimeout = 10 * time.Second

// httpClient makes a new connection for each request, from the client's
// namespace.
func (l *Lab) httpClient() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext:       l.Client.DialContext,
		DisableKeepAlives: true,
	}}
}

// open makes a request and returns its answer with an unread body.
func (l *Lab) open(ctx context.Context, url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := l.httpClient().Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, fmt.Errorf("get %s: %s", url, resp.Status)
	}
	return resp, nil
}

// Get makes one request on a new connection and returns the answer, trimmed: the
// server's name.
func (l *Lab) Get(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	resp, err := l.open(ctx, url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return "", fmt.Errorf("get %s: %w", url, err)
	}
	return strings.TrimSpace(string(b)), nil
}

// Ask sends one UDP packet from a new socket and returns the server's name. It
// sends once: a lost packet is an error.
func (l *Lab) Ask(ctx context.Context, address string) (string, error) {
	spread, err := l.AskAll(ctx, 1, address)
	for name := range spread {
		return name, nil
	}
	return "", err
}

// AskAll sends n UDP packets from one socket, each after the answer to the one
// before.
func (l *Lab) AskAll(ctx context.Context, n int, address string) (Spread, error) {
	c, err := l.Client.DialContext(ctx, "udp", address)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	spread := make(Spread)
	b := make([]byte, 64)
	for range n {
		c.SetDeadline(time.Now().Add(requestTimeout))
		if _, err := c.Write([]byte("who")); err != nil {
			return spread, err
		}
		k, err := c.Read(b)
		if err != nil {
			return spread, err
		}
		spread[string(b[:k])]++
	}
	return spread, nil
}

// Held is a connection that stays open.
type Held struct {
	// Server is the name of the server that has it.
	Server string
	body   io.ReadCloser
	cancel context.CancelFunc
}

// Hold opens a connection with a request that the server does not end.
func (l *Lab) Hold(url string) (*Held, error) {
	ctx, cancel := context.WithCancel(context.Background())
	// It bounds the first bytes only.
	timer := time.AfterFunc(requestTimeout, cancel)
	resp, err := l.open(ctx, url)
	if err != nil {
		cancel()
		return nil, err
	}
	line := make([]byte, 64)
	n, err := resp.Body.Read(line)
	if err != nil || !timer.Stop() {
		cancel()
		resp.Body.Close()
		return nil, fmt.Errorf("get %s: no name: %w", url, errors.Join(err, ctx.Err()))
	}
	return &Held{strings.TrimSpace(string(line[:n])), resp.Body, cancel}, nil
}

// Wait returns when the connection has ended, whoever ended it.
func (h *Held) Wait() { io.Copy(io.Discard, h.body) }

// Close ends the connection.
func (h *Held) Close() {
	h.cancel()
	h.body.Close()
}

// Spread counts answers by server.
type Spread map[string]int

// String prints "s1=3 s2=2 s3=1", by name.
func (s Spread) String() string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(s)) {
		out = append(out, fmt.Sprintf("%s=%d", name, s[name]))
	}
	return strings.Join(out, " ")
}

// Stream makes requests one after another in the background, each on a new
// connection, and counts the failures.
type Stream struct {
	get    func(context.Context) (string, error)
	every  time.Duration
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu         sync.Mutex
	generation int
	result     StreamResult
}

// StreamResult is what a Stream saw since it started or was last reset.
type StreamResult struct {
	// Spread counts good answers by server.
	Spread       Spread
	Good, Failed int
	// LastErr is the last failure's.
	LastErr error
}

// StartStream starts workers that each make a request to an http URL, or to a
// UDP address, and wait a while. Stop must be called.
func (l *Lab) StartStream(target string, workers int, every time.Duration) *Stream {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Stream{every: every, cancel: cancel}
	s.get = func(ctx context.Context) (string, error) { return l.Get(ctx, target) }
	if !strings.HasPrefix(target, "http://") {
		s.get = func(ctx context.Context) (string, error) { return l.Ask(ctx, target) }
	}
	s.Reset()
	for range workers {
		s.done.Go(func() { s.work(ctx) })
	}
	return s
}

func (s *Stream) work(ctx context.Context) {
	tick := time.NewTicker(s.every)
	defer tick.Stop()
	for {
		s.mu.Lock()
		generation := s.generation
		s.mu.Unlock()
		name, err := s.get(ctx)
		if ctx.Err() != nil {
			return
		}
		s.mu.Lock()
		if generation == s.generation {
			s.result.add(name, err)
		}
		s.mu.Unlock()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (r *StreamResult) add(name string, err error) {
	if err != nil {
		r.Failed++
		r.LastErr = err
		return
	}
	r.Good++
	r.Spread[name]++
}

// Reset forgets what was counted and returns it. Requests that are under way are
// never counted: only those that start after it are.
func (s *Stream) Reset() StreamResult {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.result
	s.generation++
	s.result = StreamResult{Spread: make(Spread)}
	return r
}

// Result returns what was counted so far.
func (s *Stream) Result() StreamResult {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.result
	r.Spread = maps.Clone(r.Spread)
	return r
}

// Stop ends the requests and returns what was counted.
func (s *Stream) Stop() StreamResult {
	s.cancel()
	s.done.Wait()
	return s.Result()
}
