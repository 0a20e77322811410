package tcpcheck

import (
	"errors"
	"io"
	"testing"

	"github.com/lbd-project/lbd/healthcheck/expect"
	"github.com/lbd-project/lbd/internal/checktest"
)

// TestJudge has every kind of expectation with the answers that decide it, and
// those that do not.
func TestJudge(t *testing.T) {
	a, b := text("a"), text("b")
	hexA := expect.Expect{Kind: expect.Hex, Value: "61"}
	regexA := expect.Expect{Kind: expect.Regex, Value: "[a]"}
	startA := expect.Expect{Kind: expect.Text, Value: "a", Start: true}
	reset := errors.New("connection reset")
	tests := []struct {
		name  string
		wants []expect.Expect
		data  string
		end   error
		done  bool
		want  string
	}{
		{"text", []expect.Expect{a}, "xa", nil, true, ""},
		{"text may come", []expect.Expect{a}, "x", nil, false, ""},
		{"text never came", []expect.Expect{a}, "x", io.EOF, true, `step 1: expect text "a": got "x": the target closed the connection: EOF`},
		{"text, too much", []expect.Expect{a}, "x", errFull, true, `step 1: expect text "a": got "x": not in the first 32768 bytes`},
		{"text, reset", []expect.Expect{a}, "x", reset, true, `step 1: expect text "a": got "x": connection reset`},
		{"nothing came", []expect.Expect{a}, "", io.EOF, true, `step 1: expect text "a": got nothing: the target closed the connection: EOF`},
		{"start", []expect.Expect{startA}, "ax", nil, true, ""},
		{"start is wrong", []expect.Expect{startA}, "xa", nil, true, `step 1: expect text at the start "a": got "xa"`},
		{"hex", []expect.Expect{hexA}, "xa", nil, true, ""},
		{"hex never came", []expect.Expect{hexA}, "x", io.EOF, true, `step 1: expect hex "61": got "x": the target closed the connection: EOF`},
		{"regex", []expect.Expect{regexA}, "xa", nil, true, ""},
		{"regex never came", []expect.Expect{regexA}, "x", io.EOF, true, `step 1: expect regex "[a]": got "x": the target closed the connection: EOF`},

		{"not text", []expect.Expect{not(a)}, "xa", nil, true, `step 1: expect no text "a": got "xa"`},
		{"not hex", []expect.Expect{not(hexA)}, "xa", nil, true, `step 1: expect no hex "61": got "xa"`},
		{"not regex", []expect.Expect{not(regexA)}, "xa", nil, true, `step 1: expect no regex "[a]": got "xa"`},
		{"not start", []expect.Expect{not(startA)}, "ax", nil, true, `step 1: expect no text at the start "a": got "ax"`},
		{"not start is decided", []expect.Expect{not(startA)}, "xa", nil, true, ""},
		{"not text, open", []expect.Expect{not(a)}, "x", nil, false, ""},
		{"not text, closed", []expect.Expect{not(a)}, "x", io.EOF, true, ""},
		{"not text, quiet", []expect.Expect{not(a)}, "x", errQuiet, true, ""},
		{"not text, full", []expect.Expect{not(a)}, "x", errFull, true, ""},
		// An answer that breaks off might have had it.
		{"not text, reset", []expect.Expect{not(a)}, "x", reset, true, `step 1: expect no text "a": got "x": connection reset`},
		// No answer does not have it either, but is none.
		{"not text, empty", []expect.Expect{not(a)}, "", nil, false, ""},
		{"not text, closed without a word", []expect.Expect{not(a)}, "", io.EOF, true, `step 1: expect no text "a": got nothing: the target closed the connection: EOF`},

		{"both", []expect.Expect{a, b}, "ba", nil, true, ""},
		{"one of two", []expect.Expect{a, b}, "xa", nil, false, ""},
		{"one of two, closed", []expect.Expect{a, b}, "xa", io.EOF, true, `step 2: expect text "b": got "xa": the target closed the connection: EOF`},
		// What is expected completes the answer: nothing waits for the end.
		{"a and not b", []expect.Expect{a, not(b)}, "a", nil, true, ""},
		{"not b and a", []expect.Expect{not(b), a}, "a", nil, true, ""},
		{"a and not b, open", []expect.Expect{a, not(b)}, "x", nil, false, ""},
		{"a and not b, wrong", []expect.Expect{a, not(b)}, "ba", nil, true, `step 2: expect no text "b": got "ba"`},
	}
	for _, tt := range tests {
		an := answer{data: []byte(tt.data)}
		for i, e := range tt.wants {
			m, err := e.Compile()
			if err != nil {
				t.Fatal(err)
			}
			an.wants = append(an.wants, want{step: i + 1, matcher: m})
		}
		done, err := an.judge(tt.end)
		if done != tt.done || checktest.Text(err) != tt.want {
			t.Errorf("%s: want %v with %q, got %v with %q", tt.name, tt.done, tt.want, done, checktest.Text(err))
		}
	}
}

// FuzzAnswer has an answer come whole, and in two pieces: that must not matter.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte("+PONG\r\n"), 3, "PONG", "ERR", true, false)
	f.Add([]byte("-ERR no\r\n"), 1, "ERR", "no", false, true)
	f.Fuzz(func(t *testing.T, data []byte, cut int, one, two string, negate, start bool) {
		var wants []want
		for i, e := range []expect.Expect{
			{Kind: expect.Text, Value: one, Negate: negate},
			{Kind: expect.Text, Value: two, Start: start, Negate: !negate},
		} {
			m, err := e.Compile()
			if err != nil {
				return
			}
			wants = append(wants, want{step: i + 1, matcher: m})
		}
		data = data[:min(len(data), MaxAnswer)]
		whole := answer{wants: wants, data: data}
		_, wholeErr := whole.judge(io.EOF)
		pieces := answer{wants: wants, data: data[:max(0, min(cut, len(data)))]}
		done, err := pieces.judge(nil)
		switch {
		case !done && err != nil:
			t.Fatalf("not done with error %v", err)
		case done && err != nil && wholeErr == nil:
			t.Fatalf("%q is wrong after %d bytes, %v, but not as a whole", data, cut, err)
		case !done && len(pieces.data) == len(data) && wholeErr == nil && !negate && pieces.rest:
			t.Fatalf("%q has all that is expected and still waits", data)
		}
		// The other way about, only something that comes after all that was
		// expected may be wrong.
		if done && err == nil && wholeErr != nil && len(pieces.data) == len(data) {
			t.Fatalf("%q is right, and wrong in the end: %v", data, wholeErr)
		}
	})
}
