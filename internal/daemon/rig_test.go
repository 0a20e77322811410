package daemon

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/internal/daemon/fleet"
	"github.com/lbd-project/lbd/internal/memory"
	"github.com/lbd-project/lbd/internal/sysnet"
	"github.com/lbd-project/lbd/ipvs"
	"github.com/lbd-project/lbd/ipvs/ipvstest"
)

// rig is a host that outlives daemons: its table, sysctls, addresses, real
// servers and what the daemons remember. It is for one synctest bubble.
type rig struct {
	t     *testing.T
	table *ipvstest.Fake
	host  *fakeHost
	net   *fakeNet
	log   *logBuffer
	// hangup is SIGHUP.
	hangup chan os.Signal
	// wrap, if not nil, makes the engine of the daemons from that of the table.
	wrap func(Engine) Engine
	// name is the engine's, the kernel's if it is empty; equip, if not nil, gives
	// it more.
	name  config.Engine
	equip func(*opened)

	mu      sync.Mutex
	stored  memory.Memory
	savedAt time.Time
	// saves counts, saveErr fails them.
	saves   int
	saveErr error
	notices []string
	admin   fakeStateFile
	// paths are those of checks through services.
	paths Paths
	// command runs commands.
	command runCommand
}

func newRig(t *testing.T) *rig {
	return &rig{
		t:      t,
		table:  ipvstest.New(),
		host:   &fakeHost{sysctls: map[string]int{"expire_nodest_conn": 0, "expire_quiescent_template": 0}, addresses: map[VIP]bool{}},
		net:    &fakeNet{down: map[netip.AddrPort]error{}},
		log:    &logBuffer{},
		hangup: make(chan os.Signal),
	}
}

// Save implements Store.
func (r *rig) Save(m memory.Memory) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.saves++
	if r.saveErr != nil {
		return r.saveErr
	}
	r.stored, r.savedAt = m, time.Now()
	return nil
}

// load returns what was saved, aged as a memory.Store does it.
func (r *rig) load() memory.Memory {
	r.mu.Lock()
	defer r.mu.Unlock()
	m, age := r.stored, time.Since(r.savedAt)
	m.Drains = slices.Clone(m.Drains)
	for i := range m.Drains {
		m.Drains[i].Remaining = max(0, m.Drains[i].Remaining-age)
	}
	m.DownFor = maps.Clone(m.DownFor)
	for k := range m.DownFor {
		m.DownFor[k] += age
	}
	m.Returns = maps.Clone(m.Returns)
	for k, back := range m.Returns {
		if back.Back {
			back.For += age
			m.Returns[k] = back
		}
	}
	return m
}

// process is a running daemon.
type process struct {
	*Daemon
	r      *rig
	cancel context.CancelFunc
	done   chan error
}

// start starts a daemon and waits until everything is idle.
func (r *rig) start(c *config.Config) *process {
	r.t.Helper()
	p := r.begin(c)
	synctest.Wait()
	return p
}

// begin starts a daemon.
func (r *rig) begin(c *config.Config) *process {
	r.t.Helper()
	return r.run(&loaded{Config: c, file: "lbd.yaml", at: time.Now()})
}

// run starts a daemon.
func (r *rig) run(l *loaded) *process {
	r.t.Helper()
	var e Engine = engine{r.table}
	if r.wrap != nil {
		e = r.wrap(e)
	}
	log := slog.New(slog.NewTextHandler(r.log, nil))
	o := &opened{engine: e, watched: e}
	if r.equip != nil {
		r.equip(o)
	}
	d, err := assemble(parts{
		log:    log,
		name:   cmp.Or(r.name, config.EngineKernel),
		opened: o,
		host:   r.host,
		store:  r,
		notifier: &notifier{log: log, send: func(s string) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.notices = append(r.notices, s)
			return nil
		}},
		loaded:  l,
		mem:     r.load(),
		admin:   r.admin.open(),
		paths:   r.paths,
		hangup:  r.hangup,
		command: r.command,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{Daemon: d, r: r, cancel: cancel, done: make(chan error, 1)}
	go func() { p.done <- d.run(ctx, nil, nil) }()
	r.t.Cleanup(p.kill)
	return p
}

// kill drops the daemon: nothing is cleaned up, as after kill -9.
func (p *process) kill() {
	p.cancel()
	if err := <-p.done; err != nil {
		p.r.t.Errorf("daemon: %v", err)
	}
	p.done <- nil
}

// switchTo loads a configuration as a reload does.
func (p *process) switchTo(c *config.Config) error {
	var err error
	doErr := p.owner.do(context.Background(), p.stopped, func(ctx context.Context) {
		if err = p.owner.switchTo(&loaded{Config: c, file: "lbd.yaml", at: time.Now()}); err == nil {
			_, err = p.owner.pass(ctx)
		}
	})
	synctest.Wait()
	return errors.Join(doErr, err)
}

// after lets time pass.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// engine is the fake table with the fast counts of the kernel, and no
// connections.
type engine struct{ *ipvstest.Fake }

func (e engine) Connections(context.Context) iter.Seq2[ipvs.Connection, error] {
	return func(func(ipvs.Connection, error) bool) {}
}

func (e engine) Counts(ctx context.Context) ([]ipvs.DestinationCounts, error) {
	table, err := e.Table(ctx)
	var list []ipvs.DestinationCounts
	for _, s := range table {
		for _, d := range s.Destinations {
			list = append(list, ipvs.DestinationCounts{
				DestinationKey: ipvs.DestinationKey{Service: s.ServiceKey, Address: d.Address},
				Weight:         d.Weight, Conns: d.Conns,
			})
		}
	}
	return list, err
}

// tableText prints the table: "TCP 192.0.2.1:80 wlc: 10.0.0.2:80=3 …" in list
// order, services by key.
func (r *rig) tableText() string {
	table, err := r.table.Table(context.Background())
	if err != nil {
		return "error: " + err.Error()
	}
	var b strings.Builder
	for _, e := range table {
		fmt.Fprintf(&b, "%v %s:", e.ServiceKey, e.Scheduler)
		for _, d := range e.Destinations {
			fmt.Fprintf(&b, " %v=%d", d.Address, d.Weight)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// wantTable fails unless the table prints as want.
func (r *rig) wantTable(want ...string) {
	r.t.Helper()
	w := strings.Join(want, "\n") + "\n"
	if len(want) == 0 {
		w = ""
	}
	if got := r.tableText(); got != w {
		r.t.Fatalf("table: want\n%sgot\n%slog:\n%s", w, got, r.log)
	}
}

// noticed returns what the service manager was told, one message a line.
func (r *rig) noticed() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.notices, "\n")
}

// fakeNet is the real servers.
type fakeNet struct {
	mu   sync.Mutex
	down map[netip.AddrPort]error
	// checks counts probes by target.
	checks map[netip.AddrPort]int
	// delay is how long a probe takes.
	delay time.Duration
}

func (n *fakeNet) set(addr string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down[netip.MustParseAddrPort(addr)] = err
}

// slow makes every probe take d.
func (n *fakeNet) slow(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.delay = d
}

func (n *fakeNet) checked(addr string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.checks[netip.MustParseAddrPort(addr)]
}

// fakeMethod probes a fakeNet.
type fakeMethod struct {
	net  *fakeNet
	name string
}

func (m fakeMethod) Key() string { return m.name }

func (m fakeMethod) NewChecker(target netip.AddrPort, _ healthcheck.Env) (healthcheck.Checker, error) {
	return fakeChecker{m.net, target}, nil
}

type fakeChecker struct {
	net    *fakeNet
	target netip.AddrPort
}

func (c fakeChecker) Check(ctx context.Context) (healthcheck.Result, error) {
	c.net.mu.Lock()
	err, delay := c.net.down[c.target], c.net.delay
	if c.net.checks == nil {
		c.net.checks = map[netip.AddrPort]int{}
	}
	c.net.checks[c.target]++
	c.net.mu.Unlock()
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return healthcheck.Result{}, ctx.Err()
		}
	}
	return healthcheck.Result{Detail: "connected"}, err
}

// fakeHost is the sysctls and addresses.
type fakeHost struct {
	mu      sync.Mutex
	sysctls map[string]int
	// addresses is true for those that lbd made.
	addresses map[VIP]bool
	warnings  []string
	looks     int // calls of Warnings
	// lookTime is how long one takes, readTime how long a sysctl does; set before the
	// start.
	lookTime, readTime time.Duration
	// addErr fails AddVIPs.
	addErr error
	// writes counts.
	writes int
	// beforeWrite is called before each sysctl and address that is written.
	beforeWrite func()
}

func (h *fakeHost) Sysctl(name string) (int, error) {
	time.Sleep(h.readTime)
	h.mu.Lock()
	defer h.mu.Unlock()
	v, ok := h.sysctls[name]
	if !ok {
		return 0, fmt.Errorf("sysctl %s: no such file", name)
	}
	return v, nil
}

func (h *fakeHost) SetSysctl(name string, v int) error {
	if h.beforeWrite != nil {
		h.beforeWrite()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.writes++
	h.sysctls[name] = v
	return nil
}

func (h *fakeHost) ListVIPs(dev string) ([]sysnet.VIP, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var list []sysnet.VIP
	for v, own := range h.addresses {
		if v.Interface == dev {
			list = append(list, sysnet.VIP{Prefix: netip.PrefixFrom(v.Address, v.Address.BitLen()), Own: own})
		}
	}
	return list, nil
}

func (h *fakeHost) AddVIPs(dev string, vips []netip.Addr) (added []netip.Addr, err error) {
	h.mu.Lock()
	err = h.addErr
	h.mu.Unlock()
	if err != nil {
		return nil, err
	}
	for _, a := range vips {
		if h.beforeWrite != nil {
			h.beforeWrite()
		}
		h.mu.Lock()
		if _, ok := h.addresses[VIP{dev, a}]; !ok {
			h.writes++
			h.addresses[VIP{dev, a}] = true
			added = append(added, a)
		}
		h.mu.Unlock()
	}
	return added, nil
}

func (h *fakeHost) RemoveVIPs(dev string, vips []netip.Addr) (removed []netip.Addr, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, a := range vips {
		if _, ok := h.addresses[VIP{dev, a}]; ok {
			h.writes++
			delete(h.addresses, VIP{dev, a})
			removed = append(removed, a)
		}
	}
	return removed, nil
}

func (h *fakeHost) Conntrack() (count, limit int, err error) { return 50, 200, nil }

func (h *fakeHost) Warnings(*config.Config) []string {
	time.Sleep(h.lookTime)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.looks++
	return h.warnings
}

func (h *fakeHost) Errors(*config.Config) []string { return nil }

func (h *fakeHost) state() (map[string]int, map[VIP]bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.sysctls), maps.Clone(h.addresses)
}

// logBuffer is a log that can be read while it is written.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// conf is a configuration of the given services with short intervals.
func conf(services ...config.VirtualService) *config.Config {
	return &config.Config{
		Engine:            config.EngineAuto,
		OnExit:            config.OnExitKeep,
		ReconcileInterval: 30 * time.Second,
		MirrorInterval:    time.Second,
		DrainTimeout:      5 * time.Minute,
		VirtualServices:   services,
	}
}

const (
	vip  = "192.0.2.1:80"
	vip2 = "192.0.2.2:80"
	rs2  = "10.0.0.2:80"
	rs3  = "10.0.0.3:80"
	rs4  = "10.0.0.4:80"
)

var errRefused = errors.New("connection refused")

func key(addr string) ipvs.ServiceKey {
	return ipvs.AddrService(ipvs.TCP, netip.MustParseAddrPort(addr))
}

func dkey(vip, rs string) ipvs.DestinationKey {
	return ipvs.DestinationKey{Service: key(vip), Address: netip.MustParseAddrPort(rs)}
}

func service(addr string, servers ...config.RealServer) config.VirtualService {
	return config.VirtualService{
		Name:         "web-" + addr,
		Service:      ipvs.Service{ServiceKey: key(addr), Scheduler: "wlc"},
		DrainTimeout: 5 * time.Minute,
		RealServers:  servers,
	}
}

// mark is a service by fwmark.
func mark(m uint32) config.VirtualService {
	return config.VirtualService{Name: fmt.Sprint("mark-", m), Service: ipvs.Service{ServiceKey: ipvs.MarkService(ipvs.IPv4, m), Scheduler: "wlc"}}
}

// server is a real server without a check.
func server(addr string, weight uint32) config.RealServer {
	return config.RealServer{
		Destination:  ipvs.Destination{Address: netip.MustParseAddrPort(addr), Weight: weight},
		OnFailure:    config.OnFailureQuiesce,
		DrainTimeout: 5 * time.Minute,
	}
}

// checked is a real server with a check each second, which decides by two
// results in a row.
func (r *rig) checked(addr string, weight uint32) config.RealServer {
	s := server(addr, weight)
	s.Probes = []healthcheck.Probe{r.probe("tcp", addr)}
	return s
}

func (r *rig) probe(name, addr string) healthcheck.Probe {
	return healthcheck.Probe{
		Method: fakeMethod{r.net, name},
		Target: netip.MustParseAddrPort(addr),
		Timing: healthcheck.Timing{Interval: time.Second, Timeout: time.Second, Rise: 2, Fall: 2},
	}
}

// decided is time enough for any check to decide.
const decided = 4 * time.Second

// stateOf returns the state of a real server as the API tells it.
func (p *process) stateOf(vip, rs string) (fleet.State, string) {
	p.r.t.Helper()
	v := p.owner.view.Load()
	for i := range v.fleet.Services {
		s := &v.fleet.Services[i]
		for j := range s.Servers {
			if (ipvs.DestinationKey{Service: s.ServiceKey, Address: s.Servers[j].Address}) == dkey(vip, rs) {
				return s.Servers[j].State, s.Servers[j].Reason
			}
		}
	}
	p.r.t.Fatalf("no real server %s of %s", rs, vip)
	return "", ""
}

func hooks(beforeOp func(ipvs.Op)) ipvstest.Hooks { return ipvstest.Hooks{BeforeOp: beforeOp} }
