package main

import (
	"bytes"
	"io"
	"sync"
	"time"
)

const (
	// logPatience is how long a line waits to be written before the reader of
	// the log counts as stalled.
	logPatience = 50 * time.Millisecond
	// maxLogQueue is how many bytes wait for a stalled reader.
	maxLogQueue = 1 << 20
	// logFlush is how long the end waits for a stalled reader.
	logFlush = time.Second
)

// logWriter writes lines for as long as somebody reads them, and never waits
// long: a pipe that nobody empties must not stop the checks. While the reader
// keeps up, a line is written when Write returns. Of a stalled reader Write
// learns by waiting logPatience once; from then on lines are queued, and lost
// when the queue is full, until the reader has taken all that is queued.
//
// Errors of the underlying writer are ignored: there is nobody to tell.
type logWriter struct {
	w io.Writer
	// tellLost writes to w that lines were lost.
	tellLost func(w io.Writer, lines int)
	// ended is closed when the goroutine that writes has returned.
	ended chan struct{}

	mu    sync.Mutex
	work  *sync.Cond // queue, lost or closed has changed
	queue []logLine
	size  int // of queue in bytes
	lost  int // lines since queue began, all after its last
	// stalled says that the goroutine has not kept up since it last had nothing
	// to do.
	stalled, closed bool
}

// logLine is a line with a channel that is closed once it is written.
type logLine struct {
	text    []byte
	written chan struct{}
}

// newLogWriter starts a writer. It must be closed.
func newLogWriter(w io.Writer, tellLost func(w io.Writer, lines int)) *logWriter {
	l := &logWriter{w: w, tellLost: tellLost, ended: make(chan struct{})}
	l.work = sync.NewCond(&l.mu)
	go l.run()
	return l
}

// Write never fails.
func (l *logWriter) Write(p []byte) (int, error) {
	line := logLine{bytes.Clone(p), make(chan struct{})}
	if l.add(line) {
		select {
		case <-line.written:
		case <-time.After(logPatience):
			l.stall(line)
		}
	}
	return len(p), nil
}

// add queues a line or loses it, and says whether it is worth waiting for.
func (l *logWriter) add(line logLine) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return false
	case l.stalled && (l.lost > 0 || l.size+len(line.text) > maxLogQueue):
		l.lost++
		return false
	}
	l.queue = append(l.queue, line)
	l.size += len(line.text)
	l.work.Signal()
	return !l.stalled
}

// stall notes that a line took too long, unless it has just been written.
func (l *logWriter) stall(line logLine) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-line.written:
	default:
		l.stalled = true
	}
}

// run writes until the writer is closed and everything is written.
func (l *logWriter) run() {
	defer close(l.ended)
	for {
		lines, lost := l.take()
		if len(lines) == 0 && lost == 0 {
			return
		}
		for _, line := range lines {
			l.w.Write(line.text)
			close(line.written)
		}
		if lost > 0 {
			l.tellLost(l.w, lost)
		}
	}
}

// take waits for lines and takes all, and how many were lost after them. There
// is nothing to take once the writer is closed.
func (l *logWriter) take() ([]logLine, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.queue) == 0 && l.lost == 0 {
		l.stalled = false
		if l.closed {
			break
		}
		l.work.Wait()
	}
	lines, lost := l.queue, l.lost
	l.queue, l.size, l.lost = nil, 0, 0
	return lines, lost
}

// Close waits until everything is written, but not for a stalled reader: for at
// most logFlush. Lines that come later are lost.
func (l *logWriter) Close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.work.Signal()
	select {
	case <-l.ended:
	case <-time.After(logFlush):
	}
	return nil
}
