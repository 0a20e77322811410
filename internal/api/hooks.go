package api

import "time"

// The kinds of hooks.
const (
	HookExec    = "exec"
	HookWebhook = "webhook"
)

// Hook says how well one who is told of events hears of them.
type Hook struct {
	// Name is the one in the file, or the program or the host; never a secret.
	Name string `json:"name"`
	// Kind is exec or webhook.
	Kind string `json:"kind"`
	// Told counts events that it took, Lost those that it was not told.
	Told uint64 `json:"told"`
	Lost uint64 `json:"lost"`
	// Waiting are the events that it has not been told yet, WaitingSeconds is the
	// age of the oldest.
	Waiting        int     `json:"waiting"`
	WaitingSeconds float64 `json:"waiting_seconds"`
	// Failures counts the attempts that failed since the last that did not.
	Failures uint64 `json:"failures"`
	// LastError is what became of the last one that failed; empty for none.
	LastError     string    `json:"last_error,omitempty"`
	LastErrorTime time.Time `json:"last_error_time,omitzero"`
}

// NotificationVersion is the version of Notification. Fields may be added without
// another one.
const NotificationVersion = 1

// Notification is the body of the request that a webhook gets.
type Notification struct {
	Version int `json:"version"`
	// Host is the name of the host that lbd runs on.
	Host string `json:"host"`
	// Lost counts the events before these that could not be told, since the last
	// notification that arrived: who goes by events should look at the state.
	Lost uint64 `json:"lost"`
	// Events are 1 to 50, in order. One may come again, where lbd has not heard that
	// it arrived.
	Events []Event `json:"events"`
}
