package grpccheck

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
	"testing/iotest"
)

// FuzzFrame reads any body. What it takes is a frame of its own making.
func FuzzFrame(f *testing.F) {
	for _, s := range []string{serving, serving + "x", "", "\x00", "\x01\x00\x00\x00\x00", "\x00\xff\xff\xff\xff"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		message, err := readMessage(bytes.NewReader(body))
		slow, slowErr := readMessage(iotest.OneByteReader(bytes.NewReader(body)))
		if !bytes.Equal(message, slow) || (err == nil) != (slowErr == nil) {
			t.Fatalf("%q: %q, %v at once and %q, %v byte by byte", body, message, err, slow, slowErr)
		}
		switch {
		case err != nil && (message != nil || !errors.Is(err, errFrame)):
			t.Fatalf("%q: %q with error %v", body, message, err)
		case err == nil && message == nil && len(body) != 0:
			t.Fatalf("%q: no message, no error", body)
		case err == nil && message != nil && !bytes.Equal(frame(message), body):
			t.Fatalf("%q: is read as %q", body, message)
		}
	})
}

// FuzzResponse decodes any message. A status put behind it is what counts, and
// one put before it does not make it better.
func FuzzResponse(f *testing.F) {
	for _, s := range []string{"\x08\x01", "", "\x08\x01\x08\x02", "\x12\x03abc\x08\x01", "\x1d1234\x2112345678", "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "\x0b", "\x00"} {
		f.Add([]byte(s), int32(1))
	}
	f.Fuzz(func(t *testing.T, b []byte, after int32) {
		status, err := decodeResponse(b)
		if err != nil {
			if status != 0 || !errors.Is(err, errMessage) {
				t.Fatalf("%x: %v with error %v", b, status, err)
			}
			return
		}
		// A negative enumeration is sign-extended to ten bytes.
		field := binary.AppendUvarint([]byte{1 << 3}, uint64(int64(after)))
		if got, err := decodeResponse(append(bytes.Clone(b), field...)); err != nil || got != servingStatus(after) {
			t.Fatalf("%x and status %d: %v, %v", b, after, got, err)
		}
		if _, err := decodeResponse(append(field, b...)); err != nil {
			t.Fatalf("status %d and %x: %v", after, b, err)
		}
	})
}

// FuzzMessage undoes percent-encoding and makes nothing longer.
func FuzzMessage(f *testing.F) {
	for _, s := range []string{"", "plain", "%41", "%", "%4", "%zz", "%2541"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got := decodeMessage(s); len(got) > len(s) {
			t.Fatalf("%q becomes %q", s, got)
		}
	})
}

func TestDecodeMessage(t *testing.T) {
	for in, want := range map[string]string{"a%20b": "a b", "%e2%82%ac": "€", "%": "%", "%4": "%4", "%zz%41": "%zzA", "100%": "100%", "%2541": "%41"} {
		if got := decodeMessage(in); got != want {
			t.Errorf("%q: want %q, got %q", in, want, got)
		}
	}
}

func TestDecodeResponse(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want servingStatus
		bad  bool
	}{
		{"", 0, false},
		{"\x08\x01", 1, false},
		{"\x08\x81\x00", 1, false},
		{"\x08\x01\x08\x02", 2, false},
		{"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", -1, false},
		{"\x10\x05\x1a\x02ab\x25abcd\x29abcdefgh\x08\x01", 1, false},
		{"\x08", 0, true},
		{"\x08\x80", 0, true},
		{"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 0, true},
		{"\x0a\x01x", 0, true},  // status of another type
		{"\x1a\x05ab", 0, true}, // length past the end
		{"\x1a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 0, true},
		{"\x1d123", 0, true},
		{"\x13", 0, true},     // a group
		{"\x16", 0, true},     // no wire type
		{"\x00\x01", 0, true}, // no field
		{"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x01", 0, true},
	} {
		got, err := decodeResponse([]byte(tt.in))
		if got != tt.want || (err != nil) != tt.bad {
			t.Errorf("%q: want %v, error %v, got %v, %v", tt.in, tt.want, tt.bad, got, err)
		}
	}
}
