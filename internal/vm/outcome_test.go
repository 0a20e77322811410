package vm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/lbd-project/lbd/internal/vm/wire"
)

// recorder is a Sink that writes down its calls.
type recorder struct{ calls []string }

func (r *recorder) Begin(i int) { r.calls = append(r.calls, fmt.Sprint("begin ", i)) }
func (r *recorder) Output(stderr bool, p []byte) {
	r.calls = append(r.calls, fmt.Sprintf("output %v %s", stderr, p))
}
func (r *recorder) Exit(x wire.Exit) {
	r.calls = append(r.calls, fmt.Sprint("exit ", x.Index, " ", x.Status))
}

// goodStream is what a guest with one command says.
func goodStream(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	w := wire.NewWriter(&b)
	for _, err := range []error{
		w.Write(wire.TypeHello, nil),
		w.WriteJSON(wire.TypeBegin, wire.Begin{}),
		w.Write(wire.TypeStdout, []byte("out")),
		w.Write(wire.TypeStderr, []byte("err")),
		w.WriteJSON(wire.TypeExit, wire.Exit{Status: 3}),
		w.Write(wire.TypeFiles, []byte("tar")),
		w.Write(wire.TypeLog, []byte("log")),
		w.WriteJSON(wire.TypeResult, wire.Result{Release: "6.1", Alarms: []string{"BUG: x"}}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func TestOutcome(t *testing.T) {
	var r recorder
	var files strings.Builder
	hellos := 0
	o := &outcome{sink: &r, commands: 1, files: &files, hello: func() { hellos++ }}
	if err := o.read(bytes.NewReader(goodStream(t))); err != nil {
		t.Fatal(err)
	}
	want := []string{"begin 0", "output false out", "output true err", "exit 0 3"}
	if diff := cmp.Diff(want, r.calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	if !o.haveResult || hellos != 1 || files.String() != "tar" || string(o.log) != "log" || o.result.Release != "6.1" {
		t.Errorf("outcome = %+v, %d hellos, files %q", o, hellos, files.String())
	}
}

func TestOutcomeTruncated(t *testing.T) {
	good := goodStream(t)
	for n := range good {
		o := &outcome{sink: new(recorder), commands: 1, files: io.Discard}
		err := o.read(bytes.NewReader(good[:n]))
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d bytes: error %v, want none or %v", n, err, io.ErrUnexpectedEOF)
		}
		if o.haveResult {
			t.Errorf("%d of %d bytes gave a result", n, len(good))
		}
	}
}

func TestOutcomeRefuses(t *testing.T) {
	tests := []struct {
		name   string
		frames []string
	}{
		{"unknown type", []string{"?"}},
		{"no JSON", []string{"b{"}},
		{"result no JSON", []string{"rnull and void"}},
		{"command that is not there", []string{`b{"Index":1}`}},
		{"negative command", []string{`b{"Index":-1}`}},
		{"begin twice", []string{`b{"Index":0}`, `b{"Index":0}`}},
		{"exit before begin", []string{`x{"Index":0}`}},
		{"exit twice", []string{`b{"Index":0}`, `x{"Index":0}`, `x{"Index":0}`}},
		{"result too early", []string{`b{"Index":0}`, `r{}`}},
		{"files unasked", []string{"ftar"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var b bytes.Buffer
			w := wire.NewWriter(&b)
			for _, f := range tt.frames {
				if err := w.Write(wire.Type(f[0]), []byte(f[1:])); err != nil {
					t.Fatal(err)
				}
			}
			o := &outcome{sink: new(recorder), commands: 1}
			if err := o.read(&b); !errors.Is(err, wire.ErrCorrupt) {
				t.Errorf("error = %v, want %v", err, wire.ErrCorrupt)
			}
			if o.haveResult {
				t.Error("there is a result")
			}
		})
	}
}

func TestNoResultError(t *testing.T) {
	err := error(&NoResultError{Reason: "the guest's kernel panicked", Console: "Kernel panic - not syncing"})
	if !errors.Is(err, ErrNoResult) {
		t.Error("does not match ErrNoResult")
	}
	want := "no result from the guest: the guest's kernel panicked; the console ends with\nKernel panic - not syncing"
	if err.Error() != want {
		t.Errorf("text = %q, want %q", err, want)
	}
	if got := tail("a\nb\nc\n", 2); got != "b\nc" {
		t.Errorf("tail = %q, want the last two lines", got)
	}
	if got := cleanConsole("\x1bc\x1b[2Jab\r\n\tc\xff"); got != "c[2Jab\n\tc" {
		t.Errorf("cleanConsole = %q", got)
	}
}
