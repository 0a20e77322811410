package execcheck

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/internal/command"
)

// TestJudge has every exit status, with and without a weight in it.
func TestJudge(t *testing.T) {
	for code := range 256 {
		for _, dynamic := range []bool{false, true} {
			c := &checker{name: "probe", dynamic: dynamic}
			r, err := c.judge(command.Result{Code: code}, nil)
			want := healthcheck.Advice{}
			if dynamic && code >= 2 {
				want.Weight = healthcheck.Weight{Kind: healthcheck.WeightAbsolute, Value: uint32(code - 2)}
			}
			if healthy := code == 0 || dynamic && code >= 2; healthy != (err == nil) || r.Advice != want {
				t.Errorf("status %d, dynamic %v: want healthy %v and %+v, got %+v, %v", code, dynamic, healthy, want, r, err)
			}
		}
	}
}

func TestJudgeText(t *testing.T) {
	broken := errors.New("ended by SIGKILL")
	for name, tt := range map[string]struct {
		output      string
		code        int
		err         error
		detail, say string
	}{
		"quiet":          {"", 0, nil, "exit status 0", ""},
		"healthy":        {"12 users\nmore\n", 0, nil, "exit status 0: 12 users", ""},
		"failed":         {"\ndisk \x1b[31mfull\n", 1, nil, "exit status 1: disk ?[31mfull", "probe: exit status 1: disk ?[31mfull"},
		"failed quietly": {"", 3, nil, "exit status 3", "probe: exit status 3"},
		"killed":         {"connecting\n", 0, broken, "connecting", "ended by SIGKILL"},
	} {
		t.Run(name, func(t *testing.T) {
			c := &checker{name: "probe"}
			r, err := c.judge(command.Result{Code: tt.code, Output: []byte(tt.output)}, tt.err)
			say := ""
			if err != nil {
				say = err.Error()
			}
			if r.Detail != tt.detail || say != tt.say {
				t.Errorf("want %q, %q; got %q, %q", tt.detail, tt.say, r.Detail, say)
			}
		})
	}
}

func TestKey(t *testing.T) {
	full := Check{Args: []string{"/bin/probe", "a b", `"`}, User: "nobody", Group: "daemon", Env: map[string]string{"TOKEN": "secret", "A": "1"}, Dynamic: true, NetNS: "blue"}
	keys := make(map[string]Check)
	for _, c := range []Check{
		full,
		{Args: []string{"/bin/probe"}},
		{Args: []string{"/bin/probe a b"}},
		{Args: []string{"/bin/probe", "a b"}},
		{Args: []string{"/bin/probe", "a", "b"}},
		{Args: []string{"/bin/probe", "a", "b"}, User: "a"},
		{Args: []string{"/bin/probe", "a", "b"}, User: "a group=b"},
		{Args: []string{"/bin/probe", "a", "b"}, User: "a", Group: "b"},
		{Args: []string{"/bin/probe"}, Dynamic: true},
		{Args: []string{"/bin/probe"}, NetNS: "blue"},
		{Args: []string{"/bin/probe"}, Env: map[string]string{"A": "1"}},
		{Args: []string{"/bin/probe"}, Env: map[string]string{"A": "2"}},
		{Args: []string{"/bin/probe"}, Env: map[string]string{"A": "1", "B": "2"}},
		{Args: []string{"/bin/probe"}, Env: map[string]string{"A": "1B=2"}},
	} {
		key := c.Key()
		if other, ok := keys[key]; ok {
			t.Errorf("%+v and %+v have the key %s", c, other, key)
		}
		keys[key] = c
		for range 10 { // maps have no order
			if again := c.Key(); again != key {
				t.Errorf("%+v has the keys %s and %s", c, key, again)
			}
		}
	}
	if key := full.Key(); strings.Contains(key, "secret") || strings.Contains(key, "TOKEN") {
		t.Errorf("the key gives the environment away: %s", key)
	}
	if d := cmp.Diff(`exec args=["/bin/probe"] netns=blue`, Check{Args: []string{"/bin/probe"}, NetNS: "blue"}.Key()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestNewCheckerErrors(t *testing.T) {
	target := netip.MustParseAddrPort("10.0.0.2:80")
	args := []string{"/bin/true"}
	for name, tt := range map[string]struct {
		check  Check
		target netip.AddrPort
		want   string
	}{
		"no address": {Check{Args: args}, netip.AddrPort{}, "exec check without an address"},
		"no program": {Check{}, target, "exec check: command without a program"},
		"relative":   {Check{Args: []string{"true"}}, target, `exec check: program "true": not an absolute path`},
		"own name":   {Check{Args: args, Env: map[string]string{"LBD_PORT": "1"}}, target, `exec check: environment variable "LBD_PORT": a name that begins with LBD_ or has an equals sign`},
		"equals":     {Check{Args: args, Env: map[string]string{"A=B": "1"}}, target, `exec check: environment variable "A=B": a name that begins with LBD_ or has an equals sign`},
		"no name":    {Check{Args: args, Env: map[string]string{"": "1"}}, target, `exec check: environment variable "": not of the form NAME=value`},
		"user":       {Check{Args: args, User: "no-such-user"}, target, "exec check: user no-such-user: user: unknown user no-such-user"},
		"namespace":  {Check{Args: args, NetNS: "a/b"}, target, `exec check: netns "a/b" is neither a name nor an absolute path`},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := tt.check.NewChecker(tt.target, healthcheck.Env{}); err == nil || err.Error() != tt.want {
				t.Errorf("want %q, got %v", tt.want, err)
			}
		})
	}
}
