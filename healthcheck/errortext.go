package healthcheck

import (
	"context"
	"errors"
)

// errorText is an error as a Status keeps it: its text, and which of the errors that
// stand for something were in its chain. The rest of the chain may hold on to all
// that the checker had in its hands, such as the certificates of a server.
type errorText struct {
	text string
	is   []error
}

func (e *errorText) Error() string   { return e.text }
func (e *errorText) Unwrap() []error { return e.is }

// keep returns the error of a checker as a Status keeps it; nil for nil.
func keep(err error) error {
	if err == nil {
		return nil
	}
	t := &errorText{text: err.Error()}
	for _, known := range []error{ErrLocal, context.DeadlineExceeded} {
		if errors.Is(err, known) {
			t.is = append(t.is, known)
		}
	}
	return t
}
