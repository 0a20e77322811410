package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/internal/config"
)

// warner is a check that warns.
type warner struct {
	key string
	*warnings
}

type warnings struct {
	mu sync.Mutex
	// next returns the next warning and error.
	next func() (string, error)
}

func (w warner) say(next func() (string, error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next = next
}

func (w warner) Key() string { return w.key }

func (w warner) NewChecker(netip.AddrPort, healthcheck.Env) (healthcheck.Checker, error) {
	return w, nil
}

func (w warner) Check(context.Context) (healthcheck.Result, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	text, err := w.next()
	return healthcheck.Result{Warning: text}, err
}

func (w warner) watches(addr string) config.RealServer {
	rs := server(addr, 1)
	rs.Probes = []healthcheck.Probe{{
		Method: w, Target: netip.MustParseAddrPort(addr),
		Timing: healthcheck.Timing{Interval: time.Second, Timeout: time.Second, Rise: 1, Fall: 1},
	}}
	return rs
}

func says(text string) func() (string, error) {
	return func() (string, error) { return text, nil }
}

// What a check warns of is told once at each change, and shown as long as it holds:
// while the server is down, too, and over a reload that changes the check.
func TestCheckWarning(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		w := warner{"tls", &warnings{next: says("expires in 2 days")}}
		p := r.start(conf(service(vip, w.watches(rs2))))
		after(time.Minute)
		shown := func(want string) {
			t.Helper()
			services, err := p.Services(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			x, err := p.Explain(t.Context(), services[0].Name)
			if err != nil {
				t.Fatal(err)
			}
			st, err := p.Status(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got := services[0].RealServers[0].Checks[0].Warning; got != want {
				t.Errorf("warning of the check: want %q, got %q", want, got)
			}
			for what, list := range map[string][]string{"explain": x.Warnings, "status": st.Warnings} {
				text := strings.Join(list, "\n")
				if want == "" && strings.Contains(text, "expires") || want != "" && !strings.Contains(text, rs2+": tls "+rs2+": "+want) {
					t.Errorf("%s: want %q among the warnings, got %q", what, want, list)
				}
			}
		}
		seq := uint64(1)
		raised := func(text string) string {
			return "warning raised | web-" + vip + " | " + rs2 + " | a check warns | tls " + rs2 + ": " + text
		}
		p.wantEvents(&seq, raised("expires in 2 days"))
		shown("expires in 2 days")
		w.say(says("expires in 1 day"))
		after(time.Minute)
		p.wantEvents(&seq, raised("expires in 1 day"))
		shown("expires in 1 day")

		w.key = "tls again"
		if err := p.switchTo(conf(service(vip, w.watches(rs2)))); err != nil {
			t.Fatal(err)
		}
		after(time.Minute)
		p.wantEvents(&seq, "reload loaded | configuration loaded | lbd.yaml, sha256 ")
		w.say(func() (string, error) { return "", errors.New("refused") })
		after(time.Minute)
		if got, _ := p.happened(seq); strings.Contains(strings.Join(got, "\n"), "warning") {
			t.Errorf("a failure says nothing of the certificate, got %q", got)
		}
		shown("expires in 1 day")
		w.say(says(""))
		after(time.Minute)
		got, _ := p.happened(seq)
		if n := strings.Count(strings.Join(got, "\n"), "warning cleared | web-"+vip+" | "+rs2+" | no check warns any more"); n != 1 {
			t.Errorf("want to hear once that it was renewed, got %q", got)
		}
		shown("")
		for _, line := range []string{
			`level=WARN msg="a check warns" service=web-` + vip + " real_server=" + rs2 + ` warning="tls ` + rs2 + `: expires in 2 days"`,
			`level=INFO msg="no check warns any more" service=web-` + vip + " real_server=" + rs2,
		} {
			if n := strings.Count(r.log.String(), line); n != 1 {
				t.Errorf("want %q once in the log, got %d:\n%s", line, n, r.log)
			}
		}
		if err := p.switchTo(conf(service(vip))); err != nil {
			t.Fatal(err)
		}
		after(time.Hour)
		if n := len(p.owner.warned); n != 0 {
			t.Errorf("after it left: want none remembered, got %d", n)
		}
	})
}

// A real server that shows another certificate each time fills neither the log nor
// the events, and what it comes to is told.
func TestRestlessWarning(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		n := 0
		w := warner{"tls", &warnings{next: func() (string, error) { n++; return fmt.Sprint("certificate ", n), nil }}}
		p := r.start(conf(service(vip, w.watches(rs2))))
		const hours = 3
		after(hours * time.Hour)
		got, seq := p.happened(1)
		if n := len(got); n < hours || n > warningsAtOnce+hours {
			t.Errorf("in %d hours: want at least one event an hour and at most %d more, got %d", hours, warningsAtOnce, n)
		}
		w.say(says("the last"))
		after(2 * time.Hour)
		if got, _ := p.happened(seq); len(got) != 1 || !strings.HasSuffix(got[0], ": the last") {
			t.Errorf("want to hear of the last certificate alone, got %q", got)
		}
	})
}

// The status names some real servers whose checks warn and counts the others.
func TestManyWarnings(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		w := warner{"tls", &warnings{next: says("expires")}}
		var servers []config.RealServer
		for i := range maxCheckWarnings + 3 {
			servers = append(servers, w.watches(fmt.Sprintf("10.0.1.%d:80", i+1)))
		}
		p := r.start(conf(service(vip, servers...)))
		after(decided)
		st, err := p.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n := len(st.Warnings); n != maxCheckWarnings+1 || st.Warnings[n-1] != "checks of 3 more real servers warn" {
			t.Errorf("want %d warnings and how many more, got %q", maxCheckWarnings, st.Warnings)
		}
	})
}
