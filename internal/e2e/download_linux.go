package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

// Download is a download of Content that is under way.
type Download struct {
	// Server is the name of the server that sends it.
	Server string

	lab    *Lab
	gate   string
	size   int64
	body   io.ReadCloser
	sum    bytes.Buffer
	got    atomic.Int64
	cancel context.CancelFunc
}

// StartDownload downloads the first half of size bytes. The server waits with
// the second half until Finish. The name must be unique in the Lab.
func (l *Lab) StartDownload(name, url string, size int64) (*Download, error) {
	return l.startDownload(&Download{lab: l, gate: name, size: size},
		fmt.Sprintf("%s/download?bytes=%d&gate=%s", url, size, name), size/2)
}

// StartPacedDownload downloads size bytes, so many a second. The caller calls
// Finish to read on.
func (l *Lab) StartPacedDownload(url string, size, rate int64) (*Download, error) {
	return l.startDownload(&Download{lab: l, size: size},
		fmt.Sprintf("%s/download?bytes=%d&rate=%d", url, size, rate), 1)
}

func (l *Lab) startDownload(d *Download, url string, first int64) (*Download, error) {
	ctx, cancel := context.WithCancel(context.Background())
	d.cancel = cancel
	timer := time.AfterFunc(requestTimeout, cancel)
	resp, err := l.open(ctx, url)
	if err != nil {
		cancel()
		return nil, err
	}
	d.body, d.Server = resp.Body, resp.Header.Get("X-Server")
	if err := d.read(first); err != nil {
		d.Abandon()
		return nil, err
	}
	if !timer.Stop() {
		d.Abandon()
		return nil, fmt.Errorf("download %s: %w", url, context.DeadlineExceeded)
	}
	return d, nil
}

// Got returns how many bytes have come so far.
func (d *Download) Got() int64 { return d.got.Load() }

func (d *Download) read(n int64) error {
	for d.got.Load() < n {
		b := make([]byte, min(n-d.got.Load(), 32<<10))
		k, err := d.body.Read(b)
		d.sum.Write(b[:k])
		d.got.Add(int64(k))
		if err != nil && d.got.Load() < n {
			return fmt.Errorf("after %d of %d bytes: %w", d.got.Load(), d.size, err)
		}
	}
	return nil
}

// Finish reads the rest, for at most limit, and returns an error unless every
// byte is what it should be.
func (d *Download) Finish(limit time.Duration) error {
	defer d.Abandon()
	defer time.AfterFunc(limit, d.cancel).Stop()
	if d.gate != "" {
		close(d.lab.gate(d.gate))
	}
	if err := d.read(d.size); err != nil {
		return err
	}
	want := sha256.New()
	io.Copy(want, Content(d.size))
	if got := sha256.Sum256(d.sum.Bytes()); !bytes.Equal(got[:], want.Sum(nil)) {
		return fmt.Errorf("%d bytes with the wrong checksum: want %x, got %x", d.size, want.Sum(nil), got)
	}
	return nil
}

// Abandon ends the download.
func (d *Download) Abandon() {
	d.cancel()
	d.body.Close()
}
