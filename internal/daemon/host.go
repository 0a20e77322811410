package daemon

import (
	"fmt"
	"strconv"

	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/internal/sysnet"
)

// sysctlPrefix is what all sysctls of IPVS begin with.
const sysctlPrefix = "net.ipv4.vs."

// host is the machine in a network namespace.
type host struct{ *sysnet.Namespace }

var _ Host = host{}

// Sysctl implements Host.
func (h host) Sysctl(name string) (int, error) {
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
	_, err := h.Namespace.SetSysctl(sysctlPrefix+name, strconv.Itoa(value))
	return err
}

// Warnings implements Host.
func (h host) Warnings(c *config.Config) []string { return nil }

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
