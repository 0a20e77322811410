package config

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lbd-project/lbd/ipvs"
)

// Parse reads and validates the bytes of a configuration file. The name is for
// messages alone; nothing is read but data. The error is of type Errors and
// holds everything that is wrong, each with its position; the Config is nil
// then.
func Parse(name string, data []byte) (*Config, error) {
	root, errs := read(name, data)
	if len(errs) > 0 {
		return nil, errs
	}
	p := parser{
		file:     name,
		checks:   map[string]*namedCheck{},
		silent:   map[*node]bool{},
		unfit:    map[string]unfit{},
		names:    map[string]int{},
		services: map[ipvs.ServiceKey]int{},
		servers:  map[netip.AddrPort]int{},
		needs:    map[string]need{},
		refused:  map[Engine]Errors{},
	}
	c := p.top(root)
	p.chooseEngine(c)
	if len(p.errs) > 0 {
		return nil, p.errs.sorted()
	}
	c.Warnings = p.warnings.sorted().all()
	return c, nil
}

// parser turns the tree of a file into a Config.
type parser struct {
	file           string
	errs, warnings Errors
	// full is set when there are so many errors that the rest is not read.
	full       bool
	checks     map[string]*namedCheck
	checkNames []string
	// silent are the places of checks whose silence has been warned of.
	silent map[*node]bool
	// defaults is what a virtual service starts from.
	defaults serviceDraft
	// unfit are its keys that the file gives, by name.
	unfit map[string]unfit
	// names and services hold the line of each service.
	names    map[string]int
	services map[ipvs.ServiceKey]int
	// servers holds the line of each real server of the service at hand.
	servers map[netip.AddrPort]int
	// needs are the sysctls that follow from the services. templatesStay says that
	// the file lets clients come back to a real server of weight 0.
	needs         map[string]need
	templatesStay bool
	// userspace is what the file says of the userspace engine.
	userspace   Userspace
	userspaceAt userspaceNodes
	// refused is what one engine cannot do.
	refused map[Engine]Errors
}

// need is why a sysctl should be 1: the harm that 0 does; empty for none.
type need struct {
	line int
	why  string
}

func (p *parser) errorf(n *node, format string, args ...any) {
	if p.full {
		return
	}
	err := p.error(n, format, args...)
	// What is wrong with a service's value is found again at each real server.
	if k := len(p.errs); k > 0 && p.errs[k-1] == err {
		return
	}
	if len(p.errs) == maxKept-1 {
		p.full = true
		err.Msg = "too many errors: the rest of the file was not read"
	}
	p.errs = append(p.errs, err)
}

func (p *parser) error(n *node, format string, args ...any) Error {
	return Error{p.file, n.line, n.col, fmt.Sprintf(format, args...)}
}

func (p *parser) warnf(n *node, format string, args ...any) {
	if len(p.warnings) < maxKept {
		p.warnings = append(p.warnings, p.error(n, format, args...))
	}
}

// top reads the whole file. Checks come first and defaults next, wherever they
// stand, because the rest refers to them.
func (p *parser) top(root *node) *Config {
	c := &Config{}
	var checks, defaultsAt, services, sysctls, userspace *node
	set := func(k *key, v *node) {
		switch k.name {
		case "checks":
			checks = v
		case "defaults":
			defaultsAt = v
		case "virtual_services":
			services = v
		case "sysctls":
			sysctls = v
		case "userspace":
			userspace = v
		default:
			p.setTop(c, k, v)
		}
	}
	defaults(topObject, set)
	defaults(socketObject, func(k *key, v *node) { p.setSocket(c, k, v) })
	defaults(userspaceObject, p.setUserspace)
	p.userspaceAt = userspaceNodes{}
	if !p.object(root, topObject, set) {
		return c
	}
	if userspace != nil {
		p.parseUserspace(userspace)
	}
	c.Userspace = p.userspace
	if checks != nil {
		p.parseChecks(checks)
	}
	p.builtinDefaults()
	if defaultsAt != nil {
		p.object(defaultsAt, defaultsObject, func(k *key, v *node) {
			p.unfit[k.name] = unfit{at: v}
			p.setService(&p.defaults, k, v)
		})
		p.defaults.forget()
	}
	c.DrainTimeout = p.defaults.server.drainTimeout
	// What on_failure means depends on them.
	given := p.parseSysctls(c, sysctls)
	if services != nil {
		c.VirtualServices = p.parseServices(services)
		p.warnUnfit()
	}
	p.checkCapacity(orNode(p.userspaceAt.mark, root), c)
	p.addSysctls(c, given)
	for _, name := range p.checkNames {
		if nc := p.checks[name]; !nc.used {
			p.warnf(nc.at, "check %s is not used", name)
		}
	}
	return c
}

// setTop sets a key of the file's top.
func (p *parser) setTop(c *Config, k *key, v *node) {
	switch k.name {
	case "engine":
		s, _ := p.word(k, v)
		c.Engine = Engine(s)
	case "netns":
		c.NetNS, _ = p.netns(k, v)
	case "socket":
		p.object(v, k.object, func(k *key, v *node) { p.setSocket(c, k, v) })
	case "state_file":
		c.StateFile, _ = p.stateFile(k, v)
	case "state_max_age":
		c.StateMaxAge, _ = p.duration(k, v)
	case "on_exit":
		s, _ := p.word(k, v)
		c.OnExit = OnExit(s)
	case "vip_interface":
		c.VIPInterface, _ = p.iface(k, v)
	case "exclusive":
		c.Exclusive, _ = p.boolean(k, v)
	case "reconcile_interval":
		c.ReconcileInterval, _ = p.duration(k, v)
	case "mirror_interval":
		c.MirrorInterval, _ = p.duration(k, v)
	case "notify":
		p.parseNotify(c, v)
	case "timeouts":
		p.object(v, k.object, func(k *key, v *node) {
			d, _ := p.duration(k, v)
			switch k.name {
			case "tcp":
				c.Timeouts.TCP = d
			case "tcp_fin":
				c.Timeouts.TCPFin = d
			case "udp":
				c.Timeouts.UDP = d
			default:
				panic(unhandled(k))
			}
		})
	default:
		panic(unhandled(k))
	}
}

// maxSocketPath is the size of sun_path (unix(7)) less the final zero.
const maxSocketPath = 107

func (p *parser) setSocket(c *Config, k *key, v *node) {
	s, ok := p.text(k, v)
	if !ok {
		return
	}
	switch k.name {
	case "path":
		if !strings.HasPrefix(s, "/") || len(s) > maxSocketPath || strings.HasSuffix(s, "/") {
			p.errorf(v, "path: want an absolute path of at most %d bytes, got %s", maxSocketPath, describe(v))
			return
		}
		c.SocketPath = s
	case "group":
		if strings.ContainsAny(s, " :/,\t") || len(s) > 64 {
			p.errorf(v, "group: want the name of a group, got %s", describe(v))
			return
		}
		c.SocketGroup = s
	default:
		panic(unhandled(k))
	}
}

// stateFile reads an absolute path, or nothing.
func (p *parser) stateFile(k *key, v *node) (string, bool) {
	s, ok := p.text(k, v)
	if !ok {
		return "", false
	}
	bad := s != "" && (!filepath.IsAbs(s) || filepath.Clean(s) != s || s == "/" || len(s) > 4000)
	if bad {
		p.errorf(v, "%s: want an absolute path of a file, or \"\", got %s", k.name, describe(v))
	}
	return s, !bad
}

// netns reads the name or the path of a network namespace.
func (p *parser) netns(k *key, v *node) (string, bool) {
	s, ok := p.text(k, v)
	if !ok {
		return "", false
	}
	bad := s == "." || s == ".." || !strings.HasPrefix(s, "/") && strings.Contains(s, "/") || len(s) > 4095
	if bad {
		p.errorf(v, "netns: want a name or an absolute path, got %s", describe(v))
	}
	return s, !bad
}

// maxInterfaceName is IFNAMSIZ less the final zero.
const maxInterfaceName = 15

// iface reads the name of a network interface (dev_valid_name in
// net/core/dev.c).
func (p *parser) iface(k *key, v *node) (string, bool) {
	s, ok := p.text(k, v)
	if !ok {
		return "", false
	}
	bad := len(s) > maxInterfaceName || s == "." || s == ".." || strings.ContainsAny(s, "/: \t")
	if bad {
		p.errorf(v, "%s: want the name of an interface, got %s", k.name, describe(v))
	}
	return s, !bad
}

// parseSysctls reads sysctls, with the default, and returns where the file gives
// them.
func (p *parser) parseSysctls(c *Config, n *node) map[string]*node {
	c.Sysctls = map[string]int{}
	at := map[string]*node{}
	set := func(k *key, v *node) {
		if i, ok := p.integer(k, v); ok {
			c.Sysctls[k.name] = int(i)
		}
		at[k.name] = v
	}
	defaults(sysctlObject, set)
	if n != nil {
		p.object(n, sysctlObject, func(k *key, v *node) {
			set(k, v)
			if !slices.Contains(userspaceSysctls, k.name) {
				p.refuse(EngineUserspace, v, "sysctls: %s is of the kernel's IPVS alone: the userspace engine has %s", k.name, strings.Join(userspaceSysctls, ", "))
			}
		})
	}
	value, ok := c.Sysctls[sysctlExpireTemplate]
	p.templatesStay = ok && value == 0
	return at
}

// addSysctls adds the sysctls that the services need to those that are given, and
// warns of what contradicts them.
func (p *parser) addSysctls(c *Config, given map[string]*node) {
	for _, name := range []string{sysctlExpireNodest, sysctlExpireTemplate} {
		need, needed := p.needs[name]
		switch value, ok := c.Sysctls[name]; {
		case !needed:
		case !ok && given[name] == nil:
			c.Sysctls[name] = 1
		case value == 0 && ok && need.why != "":
			p.warnf(given[name], "%s is 0, but the virtual service at line %d %s", name, need.line, need.why)
		}
	}
}
