package e2e

import (
	"encoding/binary"
	"io"
	"math/rand/v2"
)

// Content returns n bytes that anybody can make again and that repeat nowhere,
// so that a lost, doubled or moved piece shows.
func Content(n int64) io.Reader {
	var seed [32]byte
	binary.BigEndian.PutUint64(seed[:], uint64(n))
	return io.LimitReader(rand.NewChaCha8(seed), n)
}
