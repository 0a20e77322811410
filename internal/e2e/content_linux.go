package e2e

import (
	"encoding/binary"
	"io"
)

// Content returns n bytes that anybody can make again and that repeat nowhere,
// so that a lost, doubled or moved piece shows. It is cheap to make even on an
// emulated processor.
func Content(n int64) io.Reader { return io.LimitReader(new(content), n) }

// content is a stream of the SplitMix64 numbers of 1, 2, 3 and so on.
type content struct {
	counter uint64
	rest    []byte
	buf     [8]byte
}

func (c *content) Read(p []byte) (int, error) {
	for n := 0; n < len(p); {
		if len(c.rest) == 0 {
			c.counter++
			x := c.counter * 0x9e3779b97f4a7c15
			x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
			x = (x ^ x>>27) * 0x94d049bb133111eb
			binary.LittleEndian.PutUint64(c.buf[:], x^x>>31)
			c.rest = c.buf[:]
		}
		k := copy(p[n:], c.rest)
		n, c.rest = n+k, c.rest[k:]
	}
	return len(p), nil
}
