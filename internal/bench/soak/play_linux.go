package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/lbd-project/lbd/internal/api"
	"github.com/lbd-project/lbd/internal/bench/rig"
	"github.com/lbd-project/lbd/internal/e2e"
	"github.com/lbd-project/lbd/internal/netnstest"
)

const (
	// servers is the number of real servers.
	servers = 4
	// clients are how many connections there are at once.
	clients = 64
	// sources are the client's addresses; each tuple comes back reuse times.
	sources = 100
	reuse   = 10
	// changeEvery is the time between two changes, apiTimeout that of an answer of
	// lbd.
	changeEvery = 150 * time.Millisecond
	apiTimeout  = 10 * time.Second
)

// soak is a run.
type soak struct {
	options
	rig    *rig.Rig
	dir    string
	lbd    *e2e.LBD
	client *api.Client
	churn  *churn
}

// tuples is how many addresses and ports the client has.
func (s *soak) tuples() int { return s.connections / reuse / sources * sources }

// play makes all connections and returns what was found.
func (o options) play(ctx context.Context, t netnstest.TB, out io.Writer) (*findings, error) {
	dir, err := os.MkdirTemp("", "lbd-soak-")
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &soak{options: o, rig: rig.New(t, rig.ProgramsIn(o.bin), servers), dir: dir}
	for i := range servers {
		if err := s.rig.Serve(ctx, i, rig.Work{Workers: 4}); err != nil {
			return nil, err
		}
	}
	s.churn = newChurn(s.rig, filepath.Join(dir, "lbd.yaml"), filepath.Join(dir, "lbd.sock"), rand.New(rand.NewPCG(o.seed, 0)))
	if err := s.churn.all(); err != nil {
		return nil, err
	}
	s.lbd = e2e.NewLBD(t, s.rig.Balancer, filepath.Join(o.bin, "lbd"), s.churn.file, dir)
	s.client = api.NewClient(s.churn.socket, apiTimeout)

	f := &findings{}
	// A first lbd shows what one is made of.
	if f.goroutinesBefore, f.filesBefore, err = s.measureIdle(); err != nil {
		return nil, err
	}
	if err := s.lbd.Start(); err != nil {
		return nil, err
	}
	start := time.Now()
	if err := s.load(ctx, f); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, s.lbd.Log())
	}
	fmt.Fprintf(out, "%d connections in %v, %d a second; %s; server requests %v; lbd's slowest answer took %v\n",
		f.outcome.Done, f.outcome.Elapsed.Truncate(time.Millisecond), int(f.outcome.Rate()), s.churn, f.outcome.Servers, f.slowest.Truncate(time.Millisecond))
	if err := s.compare(ctx, f); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, s.lbd.Log())
	}
	fmt.Fprintf(out, "counts compared %v after the start: lbd counted %d connections, %d are inactive; memory %v; warnings %q\n",
		time.Since(start).Truncate(time.Second), f.counted, f.inactive, f.memory, f.warnings)
	if f.files, err = files(s.lbd); err != nil {
		return nil, err
	}
	if f.goroutines, err = s.dumpGoroutines(); err != nil {
		return nil, err
	}
	return f, nil
}

// load runs the client, and the changes beside it.
func (s *soak) load(ctx context.Context, f *findings) error {
	type end struct {
		outcome *rig.Outcome
		err     error
	}
	ended := make(chan end, 1)
	go func() {
		o, err := s.rig.Run(ctx, rig.Load{
			Kind: rig.Requests, Connections: clients, Threads: 2, Count: s.connections,
			Time:    time.Duration(s.connections/s.floor+1) * time.Second,
			Sources: sources, Ports: s.tuples() / sources,
			To: netip.AddrPortFrom(rig.VIP(), rig.AnswerPort),
		})
		ended <- end{o, err}
	}()
	tick := time.NewTicker(changeEvery)
	defer tick.Stop()
	for {
		select {
		case e := <-ended:
			if e.outcome == nil {
				return e.err
			}
			// What failed is a finding.
			f.outcome = e.outcome
			f.complaint = e.err
			return nil
		case <-tick.C:
		}
		done, err := s.look(ctx, f)
		if err == nil && done >= uint64(s.tuples()) {
			err = s.churn.change(s.lbd)
		}
		if err != nil {
			<-ended
			return err
		}
	}
}

// look asks lbd how it does, and the kernel how much memory it has. It returns
// how many connections lbd has counted.
func (s *soak) look(ctx context.Context, f *findings) (done uint64, err error) {
	begin := time.Now()
	if _, err := s.client.Status(ctx); err != nil {
		return 0, err
	}
	f.slowest = max(f.slowest, time.Since(begin))
	table, err := s.client.Table(ctx)
	if err != nil {
		return 0, err
	}
	kb, err := resident(s.lbd)
	if err != nil {
		return 0, err
	}
	held := 0
	for _, svc := range table {
		done += svc.Stats.Connections
		for _, d := range svc.RealServers {
			held += int(d.Active) + int(d.Inactive)
		}
	}
	f.memory.note(kb, held, done*5 <= uint64(s.connections))
	return done, nil
}
