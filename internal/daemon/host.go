package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strconv"

	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/internal/sysnet"
	"github.com/lbd-project/lbd/ipvs"
)

// sysctlPrefix is what all sysctls of IPVS begin with.
const sysctlPrefix = "net.ipv4.vs."

// host is the machine in a network namespace.
type host struct {
	*sysnet.Namespace
	// sysctls are the engine's; nil for the kernel's.
	sysctls Sysctls
	// forwards says that the engine takes packets to the services' addresses as
	// they arrive, whether this host has the addresses or not.
	forwards bool
	// programs looks at those that lbd runs; nil where it runs none.
	programs *programs
}

var _ Host = host{}

// Sysctl implements Host.
func (h host) Sysctl(name string) (int, error) {
	if h.sysctls != nil {
		return h.sysctls.Sysctl(name)
	}
	text, err := h.Namespace.Sysctl(sysctlPrefix + name)
	if err != nil {
		return 0, err
	}
	v, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("sysctl %s%s: not a number: %q", sysctlPrefix, name, text)
	}
	return v, nil
}

// SetSysctl implements Host.
func (h host) SetSysctl(name string, value int) error {
	if h.sysctls != nil {
		return h.sysctls.SetSysctl(name, value)
	}
	_, err := h.Namespace.SetSysctl(sysctlPrefix+name, strconv.Itoa(value))
	return err
}

// Conntrack implements Host.
func (h host) Conntrack() (count, limit int, err error) {
	for name, v := range map[string]*int{"nf_conntrack_count": &count, "nf_conntrack_max": &limit} {
		text, err := h.Namespace.Sysctl("net.netfilter." + name)
		if errors.Is(err, fs.ErrNotExist) {
			return 0, 0, nil
		}
		if err == nil {
			*v, err = strconv.Atoi(text)
		}
		if err != nil {
			return 0, 0, fmt.Errorf("connection tracking: %w", err)
		}
	}
	return count, limit, nil
}

// Warnings implements Host.
func (h host) Warnings(c *config.Config) []string {
	var warnings []string
	if h.programs != nil {
		warnings = h.programs.warnings(c)
	}
	if w := h.checksumWarning(c); w != "" {
		warnings = append(warnings, w)
	}
	n := needs(c)
	n.Forwarded = h.forwards
	facts, err := h.ReadFacts(n)
	if err != nil {
		return append(warnings, fmt.Sprintf("cannot look for what keeps the services from working: %v", err))
	}
	return append(warnings, sysnet.Warnings(facts, n)...)
}

// checksumWarning says that services with passive count packets that no real server
// answers; empty where they do not, or where this host tracks no connections.
func (h host) checksumWarning(c *config.Config) string {
	passive := func(vs config.VirtualService) bool { return vs.Passive.On() }
	if !slices.ContainsFunc(c.VirtualServices, passive) {
		return ""
	}
	const name = "net.netfilter.nf_conntrack_checksum"
	if v, err := h.Namespace.Sysctl(name); err != nil || v != "0" {
		return ""
	}
	return name + " is 0: anybody can make real servers of services with passive look as if they did not answer, by packets with wrong checksums"
}

// needs returns what a configuration asks of the host.
func needs(c *config.Config) sysnet.Needs {
	n := sysnet.Needs{VIPInterface: c.VIPInterface}
	for i := range c.VirtualServices {
		vs := &c.VirtualServices[i]
		if vs.FWMark == 0 {
			n.VIPs = append(n.VIPs, vs.Address.Addr())
		}
		for rs := range vs.Servers() {
			switch rs.Forward {
			case ipvs.Masq:
				n.Masq = append(n.Masq, rs.Address.Addr())
			case ipvs.Route:
				n.Direct = append(n.Direct, rs.Address.Addr())
			case ipvs.Tunnel:
				n.Tunnel = append(n.Tunnel, rs.Address.Addr())
			}
		}
	}
	for _, list := range []*[]netip.Addr{&n.VIPs, &n.Masq, &n.Direct, &n.Tunnel} {
		slices.SortFunc(*list, netip.Addr.Compare)
		*list = slices.Compact(*list)
	}
	return n
}

// Errors implements Host.
func (h host) Errors(c *config.Config) []string {
	var errs []error
	if c.VIPInterface != "" {
		_, err := h.ListVIPs(c.VIPInterface)
		errs = append(errs, err)
	}
	_, err := groupID(c.SocketGroup)
	errs = append(errs, err)
	for name := range c.Sysctls {
		_, err := h.Sysctl(name)
		errs = append(errs, err)
	}
	var lines []string
	for _, err := range errs {
		if err != nil {
			lines = append(lines, err.Error())
		}
	}
	return lines
}
