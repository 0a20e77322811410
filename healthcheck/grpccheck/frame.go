package grpccheck

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
)

// maxMessage is how long an answer may be, in bytes; SERVING takes 2.
const maxMessage = 4 << 10

// errFrame is in the chain of the error of a message that is not framed as gRPC
// wants it.
var errFrame = errors.New("bad gRPC message")

// frame returns a message with the prefix of PROTOCOL-HTTP2.md: a flag for
// compression, and the length.
func frame(message []byte) []byte {
	b := make([]byte, 1, 5+len(message))
	b = binary.BigEndian.AppendUint32(b, uint32(len(message)))
	return append(b, message...)
}

// readMessage reads the only message of a body to its end, nil if there is none.
// Errors that are not of the framing are the reader's.
func readMessage(r io.Reader) ([]byte, error) {
	var prefix [5]byte
	if n, err := io.ReadFull(r, prefix[:]); err == io.EOF {
		return nil, nil
	} else if err == io.ErrUnexpectedEOF {
		return nil, fmt.Errorf("%w: ends after %d bytes of its prefix", errFrame, n)
	} else if err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(prefix[1:])
	switch {
	case prefix[0] == 1:
		return nil, fmt.Errorf("%w: compressed, which nobody asked for", errFrame)
	case prefix[0] != 0:
		return nil, fmt.Errorf("%w: flag %d is unknown", errFrame, prefix[0])
	case size > maxMessage:
		return nil, fmt.Errorf("%w: %d bytes are more than %d", errFrame, size, maxMessage)
	}
	message := make([]byte, size)
	if n, err := io.ReadFull(r, message); err == io.EOF || err == io.ErrUnexpectedEOF {
		return nil, fmt.Errorf("%w: ends after %d bytes of %d", errFrame, n, size)
	} else if err != nil {
		return nil, err
	}
	// The trailer comes with the end of the body.
	switch n, err := io.ReadFull(r, prefix[:1]); {
	case n > 0:
		return nil, fmt.Errorf("%w: more than one", errFrame)
	case err != io.EOF:
		return nil, err
	}
	return message, nil
}

// isGRPC reports whether a content type is gRPC's, of any encoding.
func isGRPC(contentType string) bool {
	rest, ok := strings.CutPrefix(strings.ToLower(contentType), "application/grpc")
	return ok && (rest == "" || rest[0] == '+' || rest[0] == ';')
}
