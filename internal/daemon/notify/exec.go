package notify

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/internal/api"
	"github.com/lbd-project/lbd/internal/command"
	"github.com/lbd-project/lbd/internal/config"
)

// program is a sender that runs a program for each event. It is not run again for
// one that it failed at: what it has done by then is not known.
type program struct {
	spec  *config.ExecHook
	reads *command.Reads
	// command is made at the first run, and kept because it knows of a program that
	// could not be killed.
	command *command.Command
}

func (p *program) send(ctx context.Context, n api.Notification) (again bool, err error) {
	if p.command == nil {
		c, err := command.New(command.Spec{Args: p.spec.Args, User: p.spec.User, Group: p.spec.Group, Reads: p.reads})
		if err != nil {
			return false, err
		}
		p.command = c
	}
	env, err := environment(n)
	if err != nil {
		return false, err
	}
	r, err := p.command.Succeed(ctx, env...)
	if line := healthcheck.Printable(r.Line()); err != nil && line != "" {
		err = fmt.Errorf("%w: %s", err, line)
	}
	return false, err
}

// environment is what the program gets to know of the event of n.
func environment(n api.Notification) ([]string, error) {
	e := n.Events[0]
	text, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encode event %d: %w", e.Seq, err)
	}
	return []string{
		"LBD_EVENT=" + oneLine(e.Kind),
		"LBD_SEQ=" + strconv.FormatUint(e.Seq, 10),
		"LBD_TIME=" + e.Time.Format(time.RFC3339Nano),
		"LBD_SERVICE=" + oneLine(e.Service),
		"LBD_KEY=" + oneLine(e.Key),
		"LBD_REAL_SERVER=" + oneLine(e.RealServer),
		"LBD_STATE=" + oneLine(e.State),
		"LBD_TEXT=" + oneLine(e.Text),
		"LBD_REASON=" + oneLine(e.Reason),
		"LBD_BY=" + oneLine(e.By),
		"LBD_LOST=" + strconv.FormatUint(n.Lost, 10),
		"LBD_JSON=" + string(text),
	}, nil
}

// oneLine makes a text fit for a line of a mail or a log: real servers and agents
// have a say in reasons.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "�"))
}

// hostName returns the name of this host, empty if it cannot be read.
func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return name
}
