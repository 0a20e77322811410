package tcpcheck

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/lbd-project/lbd/healthcheck/expect"
	"github.com/lbd-project/lbd/healthcheck/stream"
)

const (
	// quiet is how long a target is silent before its answer counts as complete
	// where only negated expectations are left.
	quiet = 200 * time.Millisecond
	// chunk is the room for the first bytes.
	chunk = 512
	// eager is how many bytes are judged anew with each byte that comes, and
	// breath how long to let more of them come beyond that: a target that sends
	// single bytes must not make the probe work quadratically.
	eager  = 1024
	breath = 2 * time.Millisecond
	// shown is how many bytes of an answer an error has.
	shown = 64
)

// These end an answer that is as complete as it gets, and so does io.EOF.
var (
	errQuiet = errors.New("the target says no more")
	errFull  = fmt.Errorf("not in the first %d bytes", MaxAnswer)
)

// answer is an answer while it comes in.
type answer struct {
	wants []want
	data  []byte
	// last is how many bytes came last.
	last int
	// rest says that only silence or the end of the stream can decide.
	rest bool
}

// judge reports whether the answer is decided, and what is wrong with it. end is
// why no more of it comes, nil while it may.
func (a *answer) judge(end error) (done bool, err error) {
	whole := errors.Is(end, io.EOF) || errors.Is(end, errQuiet) || errors.Is(end, errFull)
	var positive, waits, waitsNot bool
	for _, w := range a.wants {
		negated := w.matcher.Expect().Negate
		positive = positive || !negated
		switch w.matcher.Eval(a.data, whole) {
		case expect.Missed:
			return true, a.fail(w, end)
		case expect.Wait:
			if end != nil {
				return true, a.fail(w, end)
			}
			waits, waitsNot = waits || !negated, waitsNot || negated
		}
	}
	a.rest = !waits
	return end != nil || !waits && (positive || !waitsNot), nil
}

// fail is the error of an expectation that is not met. end may be nil.
func (a *answer) fail(w want, end error) error {
	got := "nothing"
	switch n := len(a.data); {
	case n > shown:
		got = fmt.Sprintf("%d bytes %q…", n, a.data[:shown])
	case n > 0:
		got = fmt.Sprintf("%q", a.data)
	}
	err := fmt.Errorf("step %d: expect %v: got %s", w.step, w.matcher.Expect(), got)
	if end != nil {
		err = fmt.Errorf("%w: %w", err, stream.Explain(end))
	}
	return err
}

// read waits for more of the answer, and returns why there is none.
func (a *answer) read(ctx context.Context, conn *stream.Conn) error {
	n := len(a.data)
	if n == MaxAnswer {
		return errFull
	}
	if n > eager && a.last < n/8 {
		pause(ctx, breath)
	}
	var end time.Time
	if a.rest && n > 0 {
		end = time.Now().Add(stream.Share(ctx, quiet))
	}
	if err := conn.SetReadDeadline(end); err != nil {
		return err
	}
	if n == cap(a.data) {
		a.data = slices.Grow(a.data, max(chunk, n))
	}
	var err error
	a.last, err = conn.Read(a.data[n:min(cap(a.data), MaxAnswer)])
	a.data = a.data[:n+a.last]
	switch {
	case a.last > 0:
		// An error comes again.
		return nil
	case !end.IsZero() && errors.Is(err, os.ErrDeadlineExceeded):
		return errQuiet
	}
	return err
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
