package grpccheck

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/lbd-project/lbd/healthcheck"
)

// The codes of gRPC that mean something of their own here (grpc/grpc,
// doc/statuscodes.md).
const (
	codeNotFound      = 5
	codeUnimplemented = 12
)

var codeNames = [...]string{
	"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED",
	"RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
}

// outcome returns the error that a trailer has, nil for OK.
func (k *checker) outcome(trailer http.Header) error {
	text := trailer.Get("Grpc-Status")
	if text == "" {
		return errors.New("the answer has no grpc-status")
	}
	code, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return fmt.Errorf("grpc-status %s is not a number", healthcheck.Printable(strconv.Quote(text)))
	}
	message := ""
	if m := decodeMessage(trailer.Get("Grpc-Message")); m != "" {
		message = ": " + healthcheck.Printable(m)
	}
	switch {
	case code == 0:
		return nil
	case code == codeNotFound:
		return fmt.Errorf("the server does not know the service %.80q (NOT_FOUND)%s", k.spec.Service, message)
	case code == codeUnimplemented:
		return fmt.Errorf("the server has no health service (UNIMPLEMENTED)%s", message)
	case code < uint64(len(codeNames)):
		return fmt.Errorf("the server fails the call with %s%s", codeNames[code], message)
	}
	return fmt.Errorf("the server fails the call with code %d%s", code, message)
}

// decodeMessage undoes the percent-encoding of grpc-message. What is not encoded
// well stays as it is. Of a long one only the begin is decoded.
func decodeMessage(s string) string {
	s = s[:min(len(s), 1024)]
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if v, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(v))
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
