package vm

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/lbd-project/lbd/internal/vm/wire"
)

// ErrNoResult says that a guest ended without a result: its kernel panicked, it
// hung, or QEMU failed. The error is a *NoResultError.
var ErrNoResult = errors.New("no result from the guest")

// NoResultError tells how a guest without a result ended.
type NoResultError struct {
	// Reason says what is known.
	Reason string
	// Panic says that the guest's kernel panicked.
	Panic bool
	// Console is the end of the kernel's console.
	Console string
}

// Error implements error.
func (e *NoResultError) Error() string {
	if e.Console == "" {
		return fmt.Sprintf("%v: %s", ErrNoResult, e.Reason)
	}
	return fmt.Sprintf("%v: %s; the console ends with\n%s", ErrNoResult, e.Reason, e.Console)
}

// Is matches ErrNoResult.
func (e *NoResultError) Is(target error) bool { return target == ErrNoResult }

// consoleTail is how many lines of the console an error shows.
const consoleTail = 40

// tail returns the last n lines of s.
func tail(s string, n int) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// cleanConsole removes what the firmware sends to draw on a terminal.
func cleanConsole(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r == '\n' || r == '\t' || r >= ' ' && r != 0x7f && r != 0xfffd {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Sink takes what a guest says while it runs. Calls come one at a time.
type Sink interface {
	// Begin is called when a command starts.
	Begin(index int)
	// Output is called with what the command wrote; p is only valid until
	// Output returns.
	Output(stderr bool, p []byte)
	// Exit is called when a command has ended.
	Exit(wire.Exit)
}

// outcome gathers the frames of one guest.
type outcome struct {
	sink     Sink
	commands int
	files    io.Writer
	hello    func()

	log        []byte
	begun      int
	exits      []wire.Exit
	result     wire.Result
	haveResult bool
}

// maxLog bounds the kernel log that a guest may send.
const maxLog = 16 << 20

// read takes frames until the result, or until the stream ends. The stream comes from a machine in
// which tests do as they like, so it is checked.
func (o *outcome) read(r io.Reader) error {
	buf := make([]byte, wire.MaxPayload)
	for {
		t, p, err := wire.Read(r, buf)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := o.frame(t, p); err != nil || o.haveResult {
			return err
		}
	}
}

func (o *outcome) frame(t wire.Type, p []byte) error {
	switch t {
	case wire.TypeHello:
		if o.hello != nil {
			o.hello()
		}
	case wire.TypeStdout, wire.TypeStderr:
		o.sink.Output(t == wire.TypeStderr, p)
	case wire.TypeBegin:
		return o.begin(p)
	case wire.TypeExit:
		return o.exit(p)
	case wire.TypeFiles:
		if o.files == nil {
			return fmt.Errorf("%w: files that nobody asked for", wire.ErrCorrupt)
		}
		_, err := o.files.Write(p)
		return err
	case wire.TypeLog:
		if len(o.log)+len(p) > maxLog {
			return fmt.Errorf("%w: kernel log over %d bytes", wire.ErrCorrupt, maxLog)
		}
		o.log = append(o.log, p...)
	case wire.TypeResult:
		return o.end(p)
	default:
		return fmt.Errorf("%w: unknown frame %q", wire.ErrCorrupt, t)
	}
	return nil
}

func (o *outcome) begin(p []byte) error {
	var b wire.Begin
	if err := decode(p, &b); err != nil {
		return err
	}
	if b.Index != o.begun || b.Index != len(o.exits) || b.Index >= o.commands {
		return fmt.Errorf("%w: command %d begins out of turn", wire.ErrCorrupt, b.Index)
	}
	o.begun++
	o.sink.Begin(b.Index)
	return nil
}

func (o *outcome) exit(p []byte) error {
	var x wire.Exit
	if err := decode(p, &x); err != nil {
		return err
	}
	if x.Index != len(o.exits) || x.Index >= o.begun {
		return fmt.Errorf("%w: command %d ends out of turn", wire.ErrCorrupt, x.Index)
	}
	o.exits = append(o.exits, x)
	o.sink.Exit(x)
	return nil
}

func (o *outcome) end(p []byte) error {
	if err := decode(p, &o.result); err != nil {
		return err
	}
	if len(o.exits) != o.commands {
		return fmt.Errorf("%w: result after %d of %d commands", wire.ErrCorrupt, len(o.exits), o.commands)
	}
	o.haveResult = true
	return nil
}

func decode(p []byte, v any) error {
	if err := json.Unmarshal(p, v); err != nil {
		return fmt.Errorf("%w: %w", wire.ErrCorrupt, err)
	}
	return nil
}
