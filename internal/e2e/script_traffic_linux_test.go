package e2e

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

func cmdSpread(s *script, args []string) (string, error) {
	if len(args) != 2 {
		return "", usage("spread N TARGET")
	}
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return "", err
	}
	get := s.lab.Get
	if !strings.HasPrefix(args[1], "http://") {
		get = s.lab.Ask
	}
	spread := make(Spread)
	for range n {
		name, err := get(context.Background(), args[1])
		if err != nil {
			return spread.String() + "\n", s.evidence(err)
		}
		spread[name]++
	}
	return spread.String() + "\n", nil
}

func cmdAsk(s *script, args []string) (string, error) {
	if len(args) != 2 {
		return "", usage("ask N ADDRESS:PORT")
	}
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return "", err
	}
	spread, err := s.lab.AskAll(context.Background(), n, args[1])
	return spread.String() + "\n", s.evidence(err)
}

func cmdHold(s *script, args []string) (string, error) {
	if len(args) != 3 {
		return "", usage("hold NAME N URL")
	}
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return "", err
	}
	spread := make(Spread)
	for range n {
		h, err := s.lab.Hold(args[2])
		if err != nil {
			return spread.String() + "\n", err
		}
		s.held[args[0]] = append(s.held[args[0]], h)
		spread[h.Server]++
	}
	return spread.String() + "\n", nil
}

func cmdRelease(s *script, args []string) (string, error) {
	if len(args) != 1 || s.held[args[0]] == nil {
		return "", usage("release NAME, of a hold")
	}
	for _, h := range s.held[args[0]] {
		h.Close()
	}
	delete(s.held, args[0])
	return "", nil
}

func cmdStream(s *script, args []string) (string, error) {
	const form = "stream NAME start TARGET|reset|good N|avoids SERVER"
	if len(args) < 2 {
		return "", usage(form)
	}
	st := s.streams[args[0]]
	switch verb := args[1]; {
	case verb == "start" && len(args) == 3 && st == nil:
		s.streams[args[0]] = s.lab.StartStream(args[2], 2, 10*time.Millisecond)
		return "", nil
	case st == nil:
		return "", fmt.Errorf("no stream %q; %w", args[0], usage(form))
	case verb == "reset" && len(args) == 2:
		st.Reset()
		return "", nil
	case verb == "good" && len(args) == 3:
		n, err := strconv.Atoi(args[2])
		if err != nil {
			return "", err
		}
		return s.waitGood(st, n)
	case verb == "avoids" && len(args) == 3:
		if r := st.Result(); r.Spread[args[2]] > 0 {
			return "", fmt.Errorf("%s got requests: %v", args[2], r.Spread)
		}
		return "", nil
	default:
		return "", usage(form)
	}
}

// waitGood waits for n more good requests and wants no failure since the last
// reset.
func (s *script) waitGood(st *Stream, n int) (string, error) {
	n += st.Result().Good
	deadline := time.Now().Add(retryFor)
	for {
		r := st.Result()
		switch {
		case r.Failed > 0:
			return "", s.evidence(fmt.Errorf("%d of %d requests failed, the last: %w", r.Failed, r.Good+r.Failed, r.LastErr))
		case r.Good >= n:
			return r.Spread.String() + "\n", nil
		case time.Now().After(deadline):
			return "", fmt.Errorf("%d good requests after %v, want %d", r.Good, retryFor, n)
		}
		time.Sleep(retryPause)
	}
}

func cmdDownload(s *script, args []string) (string, error) {
	if len(args) != 3 {
		return "", usage("download NAME URL BYTES")
	}
	n, err := strconv.ParseInt(args[2], 10, 64)
	if err != nil {
		return "", err
	}
	d, err := s.lab.StartDownload(args[0], args[1], n)
	if err != nil {
		return "", err
	}
	s.downloads[args[0]] = d
	return d.Server + "\n", nil
}

func cmdFinish(s *script, args []string) (string, error) {
	if len(args) != 1 || s.downloads[args[0]] == nil {
		return "", usage("finish NAME, of a download")
	}
	d := s.downloads[args[0]]
	delete(s.downloads, args[0])
	return "", d.Finish(retryFor)
}
