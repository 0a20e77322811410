package e2e

import (
	"bytes"
	"context"
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
	want   io.Reader
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
	d.cancel, d.want = cancel, Content(d.size)
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

// read reads until n bytes have come, and compares them.
func (d *Download) read(n int64) error {
	got, want := make([]byte, 32<<10), make([]byte, 32<<10)
	for d.got.Load() < n {
		k, err := d.body.Read(got[:min(n-d.got.Load(), int64(len(got)))])
		if _, err := io.ReadFull(d.want, want[:k]); err != nil {
			return fmt.Errorf("more than %d bytes came", d.size)
		}
		if !bytes.Equal(got[:k], want[:k]) {
			return fmt.Errorf("wrong bytes within %d of %d", d.got.Load(), d.size)
		}
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
	if k, err := d.body.Read(make([]byte, 1)); k > 0 || err != io.EOF {
		return fmt.Errorf("no end after %d bytes: %w", d.size, err)
	}
	return nil
}

// Abandon ends the download.
func (d *Download) Abandon() {
	d.cancel()
	d.body.Close()
}
