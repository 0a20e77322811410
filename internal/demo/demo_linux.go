package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lbd-project/lbd/internal/api"
	"github.com/lbd-project/lbd/internal/e2e"
	"github.com/lbd-project/lbd/internal/netnstest"
)

const config = `# Three real servers behind one address, weights 3:2:1.
engine: %s
socket: {path: %s}
state_file: ""
virtual_services:
  - name: web
    address: 192.0.2.10:80
    scheduler: wlc
    forwarding: masq
    check: {type: tcp, interval: 700ms, timeout: 700ms, rise: 1, fall: 3}
    real_servers:
      - {address: 10.0.0.2:80, weight: 3}
      - {address: 10.0.0.3:80, weight: 2}
      - {address: 10.0.0.4:80, weight: 1}
`

const (
	url = "http://" + e2e.VIP4
	// clients hold a connection each, most of the time.
	clients = 24
	holdFor = "700ms"
	// victim is the server that dies.
	victim       = 1
	victimWeight = 2

	downloadSize = 6 << 20
	downloadRate = 1 << 20
	// patience bounds each wait for something that must come.
	patience = 15 * time.Second
)

// weights are the configured ones, in the order of the servers.
var weights = [...]int{3, 2, 1}

// demo is the state of a run.
type demo struct {
	view   *view
	sum    summary
	dir    string
	ask    string // the engine of the configuration
	began  time.Time
	lab    *e2e.Lab
	lbd    *e2e.LBD
	stream *e2e.Stream

	mu       sync.Mutex
	download *e2e.Download
	lbdDead  bool
	table    e2e.Table
	failed   int // failures of earlier generations of the stream
	good     int
	answers  e2e.Spread
	active   [len(weights)]int // sums of the samples
	samples  int
}

// run plays all acts. An error means that the demo could not go on.
func (d *demo) run(t netnstest.TB, bin string) error {
	d.view.say("Building a client, a balancer and three real servers, each in a network namespace.")
	d.lab = e2e.NewLab(t, e2e.Masq, len(weights))
	d.lab.AddVIP(e2e.VIP4)
	file := filepath.Join(d.dir, "lbd.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, config, d.ask, d.socket()), 0o644); err != nil {
		return err
	}
	d.lbd = e2e.NewLBD(t, d.lab.Balancer, filepath.Join(bin, "lbd"), file, d.dir)
	d.view.say("Starting lbd: wlc over weights 3:2:1, a TCP check every 700 ms.")
	if err := d.lbd.Start(); err != nil {
		return err
	}
	st, err := d.status()
	if err != nil {
		return err
	}
	d.lbd.Engine = e2e.Engine(st.Engine)
	d.view.say("The engine is %s, %s (%s).", st.Engine, st.EngineVersion, st.EngineReason)
	d.answers = make(e2e.Spread)
	d.stream = d.lab.StartStream(url+"/slow?for="+holdFor, clients, time.Millisecond)
	defer d.stream.Stop()
	quit := d.watch()
	defer quit()
	for _, act := range []func() error{d.balance, d.die, d.revive, d.kill} {
		if err := act(); err != nil {
			return fmt.Errorf("%w\nlbd wrote:\n%s", err, d.lbd.Log())
		}
	}
	return nil
}

func (d *demo) socket() string { return filepath.Join(d.dir, "lbd.sock") }

// watch samples the table and shows it until the returned function is called.
func (d *demo) watch() func() {
	quit := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(250 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				d.sample()
			case <-quit:
				return
			}
		}
	})
	return func() {
		close(quit)
		done.Wait()
		d.view.close()
	}
}

func (d *demo) sample() {
	t, err := d.lbd.Table()
	if err != nil {
		return // those who need the table read it themselves and fail
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.table = t
	r := d.stream.Result()
	r.Good, r.Failed = r.Good+d.good, r.Failed+d.failed
	for name, n := range d.answers {
		r.Spread[name] += n
	}
	f := newFrame(time.Since(d.began), t, d.lab.Servers, r)
	f.LBD = !d.lbdDead
	if d.download != nil {
		f.Download = int(100 * d.download.Got() / downloadSize)
	}
	for i := range d.active {
		d.active[i] += f.Rows[i].Active
	}
	d.samples++
	d.view.show(f)
}

// reset starts a new count of the traffic and of the samples, and returns the old
// one.
func (d *demo) reset() e2e.StreamResult {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.stream.Reset()
	d.good += r.Good
	d.failed += r.Failed
	for name, n := range r.Spread {
		d.answers[name] += n
	}
	d.active = [len(weights)]int{}
	d.samples = 0
	return r
}

// balance sees that connections follow the weights.
func (d *demo) balance() error {
	d.view.say("\n== %d clients, each on a connection of its own", clients)
	if err := d.waitGood(clients); err != nil {
		return err
	}
	d.reset()
	time.Sleep(6 * time.Second)
	r := d.stream.Result()
	d.mu.Lock()
	active, samples := d.active, d.samples
	d.mu.Unlock()
	share, ok := shares(active)
	d.sum.check(ok && samples > 0, "active connections follow the weights 3:2:1", "%.2f : %.2f : %.2f, a mean of %d readings",
		share[0], share[1], share[2], samples)
	d.sum.check(r.Failed == 0 && r.Good > 0, "no request failed with all servers up", "%d of %d failed", r.Failed, r.Good+r.Failed)
	return nil
}

// shares returns the connections in units of the weights' sum, which would be
// 3, 2 and 1, and whether each is within a twentieth of all.
func shares(active [len(weights)]int) ([len(weights)]float64, bool) {
	var out [len(weights)]float64
	sum, unit := 0, 0
	for i, a := range active {
		sum += a
		unit += weights[i]
	}
	if sum == 0 {
		return out, false
	}
	ok := true
	for i, a := range active {
		out[i] = float64(a*unit) / float64(sum)
		if diff := out[i] - float64(weights[i]); diff > 0.05*float64(unit) || diff < -0.05*float64(unit) {
			ok = false
		}
	}
	return out, ok
}

// die kills a server and sees that it gets nothing once that is known.
func (d *demo) die() error {
	s := d.lab.Servers[victim]
	d.view.say("\n== %s dies", s.Name)
	d.reset()
	s.Kill()
	begin := time.Now()
	if err := d.waitWeight(victim, 0); err != nil {
		return err
	}
	detected := time.Since(begin)
	cut := d.reset()
	d.view.say("   after %.1f s lbd has set its weight to 0; %d requests failed until then", detected.Seconds(), cut.Failed)
	time.Sleep(5 * time.Second)
	r := d.stream.Result()
	d.sum.check(true, "a dead server gets weight 0", "after %.1f s", detected.Seconds())
	d.sum.check(r.Failed == 0 && r.Good > 0, "no new connection failed after that", "%d of %d failed%s", r.Failed, r.Good+r.Failed, because(r.LastErr))
	return nil
}

func because(err error) string {
	if err == nil {
		return ""
	}
	return ": " + strings.TrimSpace(err.Error())
}

// revive brings the server back.
func (d *demo) revive() error {
	s := d.lab.Servers[victim]
	d.view.say("\n== %s comes back", s.Name)
	s.Open(e2e.HTTPPort)
	begin := time.Now()
	if err := d.waitWeight(victim, victimWeight); err != nil {
		return err
	}
	took := time.Since(begin)
	d.reset()
	d.view.say("   after %.1f s it has its weight back", took.Seconds())
	time.Sleep(4 * time.Second)
	r := d.stream.Result()
	d.sum.check(r.Spread[s.Name] > 0 && r.Failed == 0, "a recovered server works again", "weight %d after %.1f s, %d answers, %d failed",
		victimWeight, took.Seconds(), r.Spread[s.Name], r.Failed)
	return nil
}

// kill kills lbd in the middle of a download and starts it again.
func (d *demo) kill() error {
	d.view.say("\n== a download of %d MB, and lbd is killed with -9 in its middle", downloadSize>>20)
	dl, err := d.lab.StartPacedDownload(url, downloadSize, downloadRate)
	if err != nil {
		return err
	}
	d.setDownload(dl)
	defer d.setDownload(nil)
	finished := make(chan error, 1)
	go func() { finished <- dl.Finish(3 * patience) }()
	time.Sleep(time.Second)
	changes, err := d.watchChanges()
	if err != nil {
		return err
	}
	d.reset()
	d.setDead(true)
	d.lbd.Kill()
	at := 100 * dl.Got() / downloadSize
	d.view.say("   lbd is dead; the download is at %d%%", at)
	time.Sleep(1500 * time.Millisecond)
	if err := d.lbd.Start(); err != nil {
		changes()
		return err
	}
	d.setDead(false)
	st, err := d.status()
	if err != nil {
		changes()
		return err
	}
	ops := st.Sync.Ops
	d.view.say("   lbd runs again; the download is at %d%%", 100*dl.Got()/downloadSize)
	err = <-finished
	change := changes()
	r := d.stream.Result()
	d.sum.check(err == nil && at > 0 && at < 100, "the download went on", "killed at %d%%, %d of %d bytes from %s came as they should%s", at, dl.Got(), downloadSize, dl.Server, because(err))
	d.sum.check(change == nil && ops == 0, "nothing was flushed, the new lbd adopted the table", "it wrote %d operations%s", ops, because(change))
	d.sum.check(r.Failed == 0 && r.Good > 0, "no request failed meanwhile", "%d of %d failed%s", r.Failed, r.Good+r.Failed, because(r.LastErr))
	return nil
}

func (d *demo) setDownload(dl *e2e.Download) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.download = dl
}

func (d *demo) setDead(dead bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lbdDead = dead
}

// watchChanges sees all the time that no service or real server goes from the
// kernel, until the returned function is called, which returns the first
// difference. Weights are not compared: lbd may find a server down at any time.
func (d *demo) watchChanges() (func() error, error) {
	rules, err := d.lbd.Rules()
	if err != nil {
		return nil, err
	}
	want := members(rules)
	quit := make(chan struct{})
	result := make(chan error, 1)
	go func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			got, err := d.lbd.Rules()
			if err == nil && members(got) != want {
				err = fmt.Errorf("it became\n%s", got)
			}
			if err != nil {
				result <- err
				return
			}
			select {
			case <-tick.C:
			case <-quit:
				result <- nil
				return
			}
		}
	}()
	return func() error {
		close(quit)
		return <-result
	}, nil
}

// endpoint finds addresses with ports in the kernel's table of IPVS, and in
// nftables rules.
var endpoint = regexp.MustCompile(`[0-9]+\.[0-9]+\.[0-9]+\.[0-9]+( \. (tcp \. )?|:)[0-9]+`)

// members are the services and real servers of a table or of rules.
func members(rules string) string {
	all := endpoint.FindAllString(rules, -1)
	slices.Sort(all)
	return strings.Join(slices.Compact(all), "\n")
}

// status asks lbd for its status.
func (d *demo) status() (api.Status, error) {
	return api.NewClient(d.socket(), patience).Status(context.Background())
}

// waitGood waits for n good answers.
func (d *demo) waitGood(n int) error {
	return wait(fmt.Sprintf("%d answers", n), func() (bool, error) { return d.stream.Result().Good >= n, nil })
}

// waitWeight waits until the engine has a weight for a server.
func (d *demo) waitWeight(server, weight int) error {
	addr := d.lab.Servers[server].V4
	return wait(fmt.Sprintf("weight %d of %v", weight, addr), func() (bool, error) {
		t, err := d.lbd.Table()
		for _, svc := range t {
			for _, r := range svc.Servers {
				if r.Address.Addr() == addr && r.Weight == weight {
					return true, err
				}
			}
		}
		return false, err
	})
}

func wait(what string, done func() (bool, error)) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		ok, err := done()
		switch {
		case err != nil:
			return err
		case ok:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("waited %v in vain for %s", patience, what)
		}
	}
}
