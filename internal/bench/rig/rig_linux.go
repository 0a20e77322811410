package rig

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/lbd-project/lbd/internal/netnstest"
)

// The addresses. All are of ranges for benchmarks, documentation or private use,
// and exist only inside the namespaces.
const (
	vip                           = "192.0.2.10"
	clientFront, balancerFront    = "198.18.0.1", "198.18.0.2"
	sourceNet, sourceFirst        = "198.18.1.0/24", "198.18.1.1"
	serverAddress, serverBalancer = "10.0.%d.2", "10.0.%d.1"
	anywhere                      = "0.0.0.0/0"
	// MaxSources is how many addresses the client has.
	MaxSources = 250
)

// The ports of the virtual services, and of the real servers.
const (
	// AnswerPort answers requests, a connection each.
	AnswerPort = 80
	// DiscardPort reads, SourcePort writes, as fast as the other side can.
	DiscardPort = 9
	SourcePort  = 19
)

// Ports are all of them.
func Ports() []uint16 { return []uint16{AnswerPort, DiscardPort, SourcePort} }

// VIP is the address of the virtual services. The balancer has it on lo.
func VIP() netip.Addr { return netip.MustParseAddr(vip) }

// Programs are the paths of the client and of the server.
type Programs struct{ Client, Server string }

// ProgramsIn returns those of a folder where "make" put them.
func ProgramsIn(dir string) Programs {
	return Programs{Client: filepath.Join(dir, "bench-client"), Server: filepath.Join(dir, "bench-server")}
}

// Rig is the network.
type Rig struct {
	Client, Balancer *netnstest.NS
	// Servers have the addresses of Server.
	Servers []*netnstest.NS

	t        netnstest.TB
	programs Programs
	serving  []*Process
}

// New builds the network for the duration of the test; nothing serves or
// balances yet.
func New(t netnstest.TB, p Programs, servers int) *Rig {
	r := &Rig{Client: netnstest.New(t), Balancer: netnstest.New(t), t: t, programs: p}
	netnstest.Veth(r.Client, "eth0", r.Balancer, "front")
	r.Client.AddAddr("eth0", clientFront+"/30")
	r.Balancer.AddAddr("front", balancerFront+"/30")
	// On lo the whole network is the client's own, without an address for each.
	r.Client.AddAddr("lo", sourceFirst+"/24")
	r.Client.AddRoute(anywhere, balancerFront)
	r.Balancer.AddRoute(sourceNet, clientFront)
	r.Balancer.AddAddr("lo", vip+"/32")
	r.Balancer.SetSysctl("net.ipv4.ip_forward", "1")
	for i := range servers {
		ns, dev := netnstest.New(t), fmt.Sprintf("s%d", i+1)
		netnstest.Veth(ns, "eth0", r.Balancer, dev)
		gateway := fmt.Sprintf(serverBalancer, i+1)
		ns.AddAddr("eth0", Server(i).String()+"/30")
		r.Balancer.AddAddr(dev, gateway+"/30")
		ns.AddRoute(anywhere, gateway)
		r.Servers = append(r.Servers, ns)
	}
	for _, ns := range append([]*netnstest.NS{r.Client, r.Balancer}, r.Servers...) {
		// No side may run out of ports, or it would measure that.
		ns.SetSysctl("net.ipv4.ip_local_port_range", "1024 65535")
		ns.SetSysctl("net.ipv4.tcp_tw_reuse", "1")
	}
	return r
}

// Server returns the address of a real server, the first one is 0.
func Server(i int) netip.Addr {
	return netip.MustParseAddr(fmt.Sprintf(serverAddress, i+1))
}

// Work is what a real server does with a request.
type Work struct {
	// Workers is how many requests it serves at once, at least 1.
	Workers int
	// Mean and Spread are its service time: uniform from Mean-Spread to
	// Mean+Spread. Zero is as fast as it can.
	Mean, Spread time.Duration
}

func (w Work) args() []string {
	ms := func(d time.Duration) string { return strconv.FormatFloat(d.Seconds()*1e3, 'f', -1, 64) }
	return []string{"-w", strconv.Itoa(w.Workers), "-s", ms(w.Mean) + ":" + ms(w.Spread)}
}

// Serve starts the server program on a real server, and returns when all its
// ports are open. It answers with Name.
func (r *Rig) Serve(ctx context.Context, i int, w Work) error {
	args := append(w.args(), Name(i),
		fmt.Sprintf("answer:%d", AnswerPort), fmt.Sprintf("discard:%d", DiscardPort), fmt.Sprintf("source:%d", SourcePort))
	cmd := exec.Command(r.programs.Server, args...)
	life, err := lifeline(r.t)
	if err != nil {
		return err
	}
	cmd.Stdin = life
	p, err := start(r.t, r.Servers[i], cmd)
	if err != nil {
		return err
	}
	r.serving = append(r.serving, p)
	return p.Await(ctx, func() error {
		if !strings.Contains(p.Output(), "ready\n") {
			return errors.New("not ready")
		}
		return nil
	})
}

// Name returns the letter that a real server answers with.
func Name(i int) string { return string(rune('A' + i)) }
