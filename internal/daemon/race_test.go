package daemon

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-project/lbd/internal/api"
	"github.com/lbd-project/lbd/internal/config"
)

// Reloads, failures, somebody's ipvsadm and every API call at once: run with
// -race. In the end the table is right.
func TestEverythingAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		a := conf(service(vip, r.checked(rs2, 3), r.checked(rs3, 2)), service(vip2, r.checked(rs2, 1)))
		b := conf(service(vip, r.checked(rs2, 5), r.checked(rs4, 2)))
		b.Sysctls = map[string]int{"expire_nodest_conn": 1}
		b.VIPInterface = "lo"
		p := r.start(a)

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var wg sync.WaitGroup
		loop := func(pause time.Duration, f func(i int) error) {
			wg.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					if err := f(i); err != nil && !errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
						return
					}
					time.Sleep(pause)
				}
			})
		}
		loop(700*time.Millisecond, func(i int) error {
			c := []*config.Config{a, b}[i%2]
			return p.owner.do(ctx, p.stopped, func(ctx context.Context) {
				if err := p.owner.switchTo(&loaded{Config: c, file: "lbd.yaml", at: time.Now()}); err != nil {
					t.Error(err)
				}
				p.owner.pass(ctx)
			})
		})
		loop(300*time.Millisecond, func(i int) error {
			r.net.set([]string{rs2, rs3, rs4}[i%3], []error{nil, errRefused}[i%2])
			return nil
		})
		loop(900*time.Millisecond, func(int) error { r.table.Clear(); return nil })
		for range 2 {
			loop(100*time.Millisecond, func(int) error {
				st, err := p.Status(ctx)
				if err == nil && st.RealServers.Total == 0 {
					err = fmt.Errorf("status without real servers: %+v", st)
				}
				return err
			})
			loop(110*time.Millisecond, func(int) error {
				list, err := p.Services(ctx)
				if err == nil && len(list) == 0 {
					err = errors.New("no services")
				}
				return err
			})
		}
		loop(130*time.Millisecond, func(int) error { _, err := p.Reconcile(ctx); return err })
		loop(170*time.Millisecond, func(int) error {
			_, err := p.Check(ctx, api.File{Name: "x", Content: "virtual_services: []\n"})
			return err
		})
		loop(150*time.Millisecond, func(i int) error {
			target, err := api.ParseAdminTarget([]string{"10.0.0.2", "10.0.0.3", "10.0.0.4"}[i/2%3])
			if err != nil {
				return err
			}
			say := []api.AdminRequest{drain, {Weight: weight(uint32(i % 9)), OverSeconds: 3}, resume, disable, {ResetWeight: true}}[i%5]
			if _, err := p.SetAdmin(ctx, target, say, api.Peer{UID: 4711}); !errors.Is(err, api.ErrNotFound) {
				return err
			}
			return nil
		})
		seq := uint64(0)
		loop(190*time.Millisecond, func(int) error {
			events, _ := p.Events(seq)
			for _, e := range events {
				if e.Seq <= seq {
					return fmt.Errorf("event %d after %d", e.Seq, seq)
				}
				seq = e.Seq
			}
			return nil
		})
		wg.Wait()
		if seq < 100 {
			t.Errorf("want many events, got %d", seq)
		}

		for _, rs := range []string{rs2, rs3, rs4} {
			r.net.set(rs, nil)
		}
		if err := p.switchTo(a); err != nil {
			t.Fatal(err)
		}
		for _, rs := range []string{rs2, rs3} {
			p.say(rs, api.AdminRequest{Mode: "none", ResetWeight: true})
		}
		after(10 * time.Second)
		got := r.tableText()
		for _, want := range []string{"10.0.0.2:80=3", "10.0.0.3:80=2", "192.0.2.2:80 wlc: 10.0.0.2:80=1"} {
			if !strings.Contains(got, want) {
				t.Errorf("table in the end: want %s, got\n%s", want, got)
			}
		}
	})
}
