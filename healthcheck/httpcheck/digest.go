package httpcheck

import (
	"bytes"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"strings"
)

// digest is a parsed Request.Digest.
type digest struct {
	name string
	new  func() hash.Hash
	want []byte
}

// parseDigest reads "md5:…" and "sha256:…". An empty text gives nil.
func parseDigest(s string) (*digest, error) {
	if s == "" {
		return nil, nil
	}
	name, sum, _ := strings.Cut(s, ":")
	d := &digest{name: strings.ToLower(name)}
	switch d.name {
	case "md5":
		d.new = md5.New
	case "sha256":
		d.new = sha256.New
	default:
		return nil, fmt.Errorf("digest %q begins with neither md5: nor sha256: before the digits", s)
	}
	var err error
	if d.want, err = hex.DecodeString(sum); err != nil {
		return nil, fmt.Errorf("digest %q: %w", s, err)
	}
	if size := d.new().Size(); len(d.want) != size {
		return nil, fmt.Errorf("digest %q has %d digits, want %d", s, len(sum), 2*size)
	}
	return d, nil
}

// check compares the digest of a body.
func (d *digest) check(h hash.Hash) error {
	if got := h.Sum(nil); !bytes.Equal(got, d.want) {
		return fmt.Errorf("the body has the %s digest %x, want %x", d.name, got, d.want)
	}
	return nil
}
