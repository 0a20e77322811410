package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// The kinds of events.
const (
	// EventStart is the first event of each lbd.
	EventStart = "start"
	// EventServer is a real server that changed, once the table has taken it;
	// EventService a virtual service.
	EventServer  = "real_server"
	EventService = "service"
	// EventAdmin is what an operator said, or what the configuration made of that.
	EventAdmin = "admin"
	// EventReload is a reload, done or refused.
	EventReload = "reload"
	// EventDrift is what somebody else changed in the table, and lbd repaired.
	EventDrift = "drift"
	// EventSync is that the table stops or begins to follow the configuration.
	EventSync = "sync"
	// EventWarning is that checks of a real server begin to warn of something, such
	// as a certificate that expires, of something else, or no more.
	EventWarning = "warning"
)

// The states of events that are not of real servers.
const (
	// Of an EventService: whether a real server takes its connections, and what
	// its policies do.
	StateUsable        = "usable"
	StateUnusable      = "unusable"
	StateQuorumHeld    = "quorum_held"
	StateQuorumLost    = "quorum_lost"
	StateBackupIn      = "backup_in"
	StateBackupOut     = "backup_out"
	StateHealthIgnored = "health_ignored"
	StateHealthHeeded  = "health_heeded"
	// Of an EventReload.
	StateLoaded  = "loaded"
	StateRefused = "refused"
	// Of an EventSync.
	StateFollows = "follows"
	StateFails   = "fails"
	// Of an EventWarning.
	StateRaised  = "raised"
	StateCleared = "cleared"
	// StateGone is that of a real server that has left the table.
	StateGone = "gone"
)

// EventKinds are all kinds.
var EventKinds = []string{EventStart, EventServer, EventService, EventAdmin, EventReload, EventDrift, EventSync, EventWarning}

// Event is something that happened.
type Event struct {
	// Seq counts from 1 in each lbd. A number that is missing is an event that is
	// not kept any more; one that is less than the last is of a new lbd.
	Seq uint64 `json:"seq"`
	// Time is when it happened, by the wall clock.
	Time time.Time `json:"time"`
	// Kind is one of EventKinds.
	Kind string `json:"kind"`
	// Service and RealServer are what it is about, by name and by address; empty
	// for lbd as a whole. Key is the identity of the service.
	Service    string `json:"service,omitempty"`
	Key        string `json:"key,omitempty"`
	RealServer string `json:"real_server,omitempty"`
	// State is what the thing is from now on, for programs: of an EventServer a
	// state as in RealServer, or "gone"; of the others one of the states below.
	// Empty for kinds without a state.
	State string `json:"state,omitempty"`
	// Text says what happened, Reason why.
	Text   string `json:"text"`
	Reason string `json:"reason,omitempty"`
	// By is who did it, of an EventAdmin.
	By string `json:"by,omitempty"`
}

// EventQuery says which events are wanted. The zero value is all that are kept.
type EventQuery struct {
	// Since leaves out those up to a number, none where lbd has not come so far: it
	// is one of an earlier lbd then.
	Since uint64
	// Follow goes on with those to come, until the reader ends it.
	Follow bool
}

func parseEventQuery(raw string) (q EventQuery, err error) {
	err = parseParameters(raw, func(name, value string) (err error) {
		switch name {
		case "since":
			q.Since, err = strconv.ParseUint(value, 10, 64)
		case "follow":
			q.Follow, err = parseFlag(value)
		default:
			err = errors.New("unknown parameter; known are since and follow")
		}
		return err
	})
	return q, err
}

// values is the inverse of parseEventQuery.
func (q EventQuery) values() url.Values {
	v := url.Values{}
	if q.Since > 0 {
		v.Set("since", strconv.FormatUint(q.Since, 10))
	}
	if q.Follow {
		v.Set("follow", "true")
	}
	return v
}

// streamEvents answers with a line an event. Nobody waits for a reader: one that
// takes nothing for a while is cut off, and for one that is too slow the ring is
// over, which it sees by the numbers. While there is nothing to tell, an empty line
// now and then shows that lbd lives.
func (s *Server) streamEvents(w http.ResponseWriter, r *http.Request) {
	q, err := parseEventQuery(r.URL.RawQuery)
	if err != nil {
		s.writeError(w, errorf(http.StatusBadRequest, "%w", err))
		return
	}
	select {
	case s.followers <- struct{}{}:
		defer func() { <-s.followers }()
	default:
		s.writeError(w, fmt.Errorf("%w: %d others are reading events", ErrUnavailable, cap(s.followers)))
		return
	}
	out := newLineWriter(w, s.limits.ahead, s.limits.stall)
	defer func() {
		if err := out.close(); err != nil {
			s.log.Debug("control answer not sent", "err", err)
		}
	}()
	out.begun = true // also without an event
	heartbeat := time.NewTicker(s.limits.heartbeat)
	defer heartbeat.Stop()
	for {
		events, more := s.backend.Events(q.Since)
		for _, e := range events {
			if out.line(e) != nil {
				return
			}
			q.Since = e.Seq
		}
		if !q.Follow || out.handOver() != nil {
			return
		}
		select {
		case <-more:
		case <-heartbeat.C:
			out.buf.WriteByte('\n')
		case <-out.done:
			return
		case <-r.Context().Done():
			return
		case <-s.stopping:
			return
		}
	}
}

// Events calls visit with the events that lbd has, and with those to come where q
// follows, until visit returns false, ctx ends or lbd does; the last two are
// errors then. The timeout bounds each silence of lbd.
func (c *Client) Events(ctx context.Context, q EventQuery, visit func(Event) bool) error {
	left := false
	err := c.stream(ctx, "/v1/events?"+q.values().Encode(), func(line []byte) (bool, error) {
		if len(line) == 1 {
			return true, nil // lbd lives
		}
		var e Event
		if err := unmarshalLine(line, &e); err != nil {
			return false, err
		}
		if c.OnAnswer != nil {
			c.OnAnswer(line)
		}
		left = !visit(e)
		return !left, nil
	})
	if err == nil && q.Follow && !left {
		return errors.New("lbd stopped, and with it its events")
	}
	return err
}
