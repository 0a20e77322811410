package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/lbd-project/lbd/internal/api"
)

// receiver is a web server that is told of events.
type receiver struct {
	mu  sync.Mutex
	got []string
}

// ServeHTTP implements http.Handler.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var n api.Notification
	if err := json.NewDecoder(http.MaxBytesReader(w, req.Body, 1<<20)).Decode(&n); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range n.Events {
		words := slices.DeleteFunc([]string{e.Kind, e.State, e.Service, e.RealServer}, func(s string) bool { return s == "" })
		r.got = append(r.got, strings.Join(words, " "))
	}
}

func cmdWebhook(s *script, args []string) (string, error) {
	switch {
	case len(args) == 2 && args[0] == "listen":
		if s.receiver != nil {
			return "", fmt.Errorf("there is a webhook already")
		}
		s.receiver = &receiver{}
		// It ends with its listener, which the namespace closes.
		go http.Serve(s.lab.Client.Listen("tcp", args[1]), s.receiver)
		return "", nil
	case len(args) == 1 && args[0] == "got" && s.receiver != nil:
		s.receiver.mu.Lock()
		defer s.receiver.mu.Unlock()
		return strings.Join(s.receiver.got, "\n") + "\n", nil
	}
	return "", usage("webhook listen ADDRESS:PORT | webhook got")
}
