package wire

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

type frame struct {
	Type    Type
	Payload string
}

func readAll(r io.Reader) ([]frame, error) {
	var out []frame
	buf := make([]byte, 16)
	for {
		t, p, err := Read(r, buf)
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		out = append(out, frame{t, string(p)})
	}
}

func TestFrames(t *testing.T) {
	var b bytes.Buffer
	w := NewWriter(&b)
	long := strings.Repeat("x", MaxPayload)
	n, err := w.Stream(TypeStderr).Write([]byte(long + "tail"))
	if err != nil || n != len(long)+4 {
		t.Fatalf("Write = %d, %v, want %d", n, err, len(long)+4)
	}
	if n, err := w.Stream(TypeStdout).Write(nil); n != 0 || err != nil {
		t.Fatalf("Write(nil) = %d, %v, want 0", n, err)
	}
	for _, err := range []error{w.Write(TypeHello, nil), w.WriteJSON(TypeBegin, Begin{Index: 3})} {
		if err != nil {
			t.Fatal(err)
		}
	}
	got, err := readAll(&b)
	if err != nil {
		t.Fatal(err)
	}
	want := []frame{{TypeStderr, long}, {TypeStderr, "tail"}, {TypeHello, ""}, {TypeBegin, `{"Index":3}`}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("frames (-want +got):\n%s", diff)
	}
}

func TestWriteJSONRefusesLarge(t *testing.T) {
	w := NewWriter(new(bytes.Buffer))
	if err := w.WriteJSON(TypeResult, strings.Repeat("x", MaxPayload)); err == nil {
		t.Error("WriteJSON of more than a frame gave no error")
	}
}

// TestReadTruncated cuts a stream at every byte: only whole frames come out.
func TestReadTruncated(t *testing.T) {
	var b bytes.Buffer
	w := NewWriter(&b)
	if err := w.Write(TypeStdout, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	one := b.Len()
	if err := w.Write(TypeResult, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	for n := range b.Len() {
		got, err := readAll(bytes.NewReader(b.Bytes()[:n]))
		if whole := n / one; len(got) != whole {
			t.Errorf("%d bytes: %d frames, want %d", n, len(got), whole)
		}
		if n == 0 || n == one {
			if err != nil {
				t.Errorf("%d bytes: error %v, want none", n, err)
			}
		} else if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d bytes: error %v, want %v", n, err, io.ErrUnexpectedEOF)
		}
	}
}

func TestReadGarbage(t *testing.T) {
	for _, in := range []string{
		"SeaBIOS (version 1.16)",
		"olbx\x00\x00\x00\x01a",
		"olbd\xff\xff\xff\xff",
		"olbd\x00\x00\x7f\xf9",
	} {
		if _, _, err := Read(strings.NewReader(in), nil); !errors.Is(err, ErrCorrupt) {
			t.Errorf("Read(%q) error = %v, want %v", in, err, ErrCorrupt)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("olbd\x00\x00\x00\x01a"))
	f.Add([]byte("hlbd\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, in []byte) {
		frames, _ := readAll(bytes.NewReader(in))
		var b bytes.Buffer
		w := NewWriter(&b)
		for _, x := range frames {
			if err := w.Write(x.Type, []byte(x.Payload)); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.HasPrefix(in, b.Bytes()) {
			t.Errorf("frames of %q encode to %q", in, b.Bytes())
		}
	})
}
