package wire

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Type tells what a frame's payload is.
type Type byte

// The types of frames.
const (
	TypeHello  Type = 'h' // the guest is up; no payload
	TypeBegin  Type = 'b' // Begin as JSON
	TypeStdout Type = 'o' // bytes a command wrote to its standard output
	TypeStderr Type = 'e' // bytes a command wrote to its standard error
	TypeExit   Type = 'x' // Exit as JSON
	TypeFiles  Type = 'f' // a piece of a tar archive of OutDir
	TypeLog    Type = 'k' // a piece of the kernel log
	TypeResult Type = 'r' // Result as JSON, the last frame
)

// MaxPayload is the size of the largest payload in bytes. A virtio-serial write
// carries at most 32 KiB (drivers/char/virtio_console.c, port_fops_write).
const MaxPayload = 32<<10 - headerLen

// headerLen is the type, three bytes of magic and the payload's length.
const headerLen = 8

// magic guards against reading a stream from its middle.
var magic = [3]byte{'l', 'b', 'd'}

// ErrCorrupt says that a stream holds something that is not a frame.
var ErrCorrupt = errors.New("corrupt stream from the guest")

// Writer writes frames. It is safe for concurrent use.
type Writer struct {
	mu  sync.Mutex
	w   io.Writer
	buf []byte
}

// NewWriter returns a Writer on w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write sends p as one or more frames of type t.
func (w *Writer) Write(t Type, p []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for first := true; first || len(p) > 0; first = false {
		n := min(len(p), MaxPayload)
		b := append(w.buf[:0], byte(t), magic[0], magic[1], magic[2])
		b = binary.BigEndian.AppendUint32(b, uint32(n))
		b = append(b, p[:n]...)
		w.buf, p = b, p[n:]
		if _, err := w.w.Write(b); err != nil {
			return fmt.Errorf("send frame: %w", err)
		}
	}
	return nil
}

// WriteJSON sends v as one frame of type t.
func (w *Writer) WriteJSON(t Type, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("send frame: %w", err)
	}
	if len(b) > MaxPayload {
		return fmt.Errorf("send frame: %d bytes of JSON do not fit", len(b))
	}
	return w.Write(t, b)
}

// Stream returns a writer whose bytes are sent as frames of type t.
func (w *Writer) Stream(t Type) io.Writer { return stream{w, t} }

type stream struct {
	w *Writer
	t Type
}

func (s stream) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if err := s.w.Write(s.t, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Read returns the next frame of r, its payload in buf where that is large
// enough. It returns io.EOF where r ends between two frames,
// io.ErrUnexpectedEOF where it ends within one, and ErrCorrupt where r holds
// something else.
func Read(r io.Reader, buf []byte) (Type, []byte, error) {
	var h [headerLen]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return 0, nil, err
	}
	if [3]byte(h[1:4]) != magic {
		return 0, nil, fmt.Errorf("%w: frame starts with %q", ErrCorrupt, h[:4])
	}
	n := binary.BigEndian.Uint32(h[4:])
	if n > MaxPayload {
		return 0, nil, fmt.Errorf("%w: frame of %d bytes", ErrCorrupt, n)
	}
	if int(n) > cap(buf) {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	if _, err := io.ReadFull(r, buf); err == io.EOF {
		return 0, nil, io.ErrUnexpectedEOF
	} else if err != nil {
		return 0, nil, err
	}
	return Type(h[0]), buf, nil
}
