// Package cpio writes archives that the Linux kernel unpacks as its initial
// file system: the "newc" format of
// Documentation/driver-api/early-userspace/buffer-format.rst.
//
// Archives may be put one after the other: the kernel unpacks them in turn, so
// the large unchanging part can be written once.
package cpio

import (
	"fmt"
	"io"
	"math"
	"path"
	"strings"
)

// File types of the mode field (include/uapi/linux/stat.h).
const (
	typeDir  = 0o040000
	typeReg  = 0o100000
	typeLink = 0o120000
)

// Writer writes one archive. Folders above an entry are made by themselves.
// It is not safe for concurrent use.
type Writer struct {
	w    io.Writer
	n    int64
	ino  uint32
	seen map[string]bool
	err  error
}

// NewWriter returns a Writer on w. Close ends the archive.
func NewWriter(w io.Writer) *Writer {
	return &Writer{w: w, seen: make(map[string]bool)}
}

// Dir adds a folder, and those above it, with mode 0755.
func (w *Writer) Dir(name string) error {
	name = clean(name)
	if name == "" || w.seen[name] {
		return w.err
	}
	if err := w.Dir(path.Dir(name)); err != nil {
		return err
	}
	return w.entry(name, typeDir|0o755, nil)
}

// File adds a file of the given contents and permissions. A name that was added
// before is replaced when the kernel unpacks the archive.
func (w *Writer) File(name string, perm uint32, data []byte) error {
	if err := w.Dir(path.Dir(clean(name))); err != nil {
		return err
	}
	return w.entry(clean(name), typeReg|perm&0o7777, data)
}

// Symlink adds a symbolic link to target.
func (w *Writer) Symlink(name, target string) error {
	if err := w.Dir(path.Dir(clean(name))); err != nil {
		return err
	}
	return w.entry(clean(name), typeLink|0o777, []byte(target))
}

// Close writes the end of the archive. It does not close the underlying writer.
func (w *Writer) Close() error {
	if w.err != nil {
		return w.err
	}
	if err := w.header("TRAILER!!!", 0, 0, 1, 0); err != nil {
		return err
	}
	// The next archive's header must start at a multiple of four.
	w.pad()
	return w.err
}

// clean returns name without a leading slash; "" is the root.
func clean(name string) string {
	return strings.TrimPrefix(path.Clean("/"+name), "/")
}

func (w *Writer) entry(name string, mode uint32, data []byte) error {
	if w.err == nil && int64(len(data)) > math.MaxUint32 {
		w.err = fmt.Errorf("cpio: %s is larger than 4 GiB", name)
	}
	if w.err == nil && name == "" {
		w.err = fmt.Errorf("cpio: the root can not be replaced")
	}
	if w.err != nil {
		return w.err
	}
	w.seen[name] = true
	w.ino++
	if err := w.header(name, w.ino, mode, 1, uint32(len(data))); err != nil {
		return err
	}
	w.write(data)
	w.pad()
	return w.err
}

// header writes the fixed part: a magic number and thirteen fields of eight hex
// digits, then the name with its NUL, padded.
func (w *Writer) header(name string, ino, mode, links, size uint32) error {
	w.write(fmt.Appendf(nil, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		ino, mode, 0, 0, links, 0, size, 0, 0, 0, 0, len(name)+1, 0, name))
	w.pad()
	return w.err
}

func (w *Writer) pad() {
	if r := w.n % 4; r != 0 {
		w.write(make([]byte, 4-r))
	}
}

func (w *Writer) write(p []byte) {
	if w.err != nil {
		return
	}
	n, err := w.w.Write(p)
	w.n += int64(n)
	if err != nil {
		w.err = fmt.Errorf("cpio: %w", err)
	}
}
