package config

import (
	"slices"
	"time"

	"github.com/lbd-project/lbd/healthcheck/tlsopt"
)

// Hook is who is told of events: a program or a web server.
type Hook struct {
	// Name is unique in the Config. Without one in the file it is the program or
	// the host, with a number where that is taken.
	Name string
	// Events are the kinds of events that it is told of; empty for all.
	Events []string
	// Timeout bounds one attempt to tell it. An event that is older than MaxAge is
	// not told any more.
	Timeout, MaxAge time.Duration
	// Exec or Webhook says how it is told; the other is nil.
	Exec    *ExecHook
	Webhook *Webhook
}

// ExecHook is a program that is run for each event.
type ExecHook struct {
	// Args are the program, by its absolute path, and its arguments.
	Args []string
	// User and Group are who it runs as; empty for lbd's own, and the user's.
	User, Group string
}

// Webhook is a web server that gets events by POST.
type Webhook struct {
	// URL is of http or https, absolute, without user information. Its path may be
	// a secret; Host, the host with the port where the file has one, is none.
	URL  Secret
	Host string
	// Headers are those besides lbd's own.
	Headers []HookHeader
	// TLS is nil for http.
	TLS *tlsopt.Options
}

// HookHeader is a header of a Webhook's request.
type HookHeader struct {
	Name  string
	Value Secret
}

// Secret is a text that is never printed: all formats and encodings have a
// placeholder. Convert it to a string where it is used.
type Secret string

const hidden = "(hidden)"

// String returns a placeholder.
func (Secret) String() string { return hidden }

// GoString returns a placeholder.
func (Secret) GoString() string { return hidden }

// MarshalText returns a placeholder.
func (Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// Equal reports whether both tell the same, to the same, in the same way.
func (h Hook) Equal(o Hook) bool {
	if h.Name != o.Name || !slices.Equal(h.Events, o.Events) || h.Timeout != o.Timeout || h.MaxAge != o.MaxAge ||
		(h.Exec == nil) != (o.Exec == nil) || (h.Webhook == nil) != (o.Webhook == nil) {
		return false
	}
	if h.Exec != nil {
		return slices.Equal(h.Exec.Args, o.Exec.Args) && h.Exec.User == o.Exec.User && h.Exec.Group == o.Exec.Group
	}
	return h.Webhook == nil || h.Webhook.URL == o.Webhook.URL && slices.Equal(h.Webhook.Headers, o.Webhook.Headers) &&
		h.Webhook.TLS.Equal(o.Webhook.TLS)
}
