//go:build !linux

package sysnet

import (
	"fmt"
	"net/netip"
	"runtime"
)

// Namespace is a network namespace. There are none on this system.
type Namespace struct{}

func errSystem() error {
	return fmt.Errorf("network namespaces: not supported on %s/%s", runtime.GOOS, runtime.GOARCH)
}

// OpenNamespace returns an error.
func OpenNamespace(string) (*Namespace, error) { return nil, errSystem() }

// String returns "none".
func (n *Namespace) String() string { return "none" }

// FD returns -1.
func (n *Namespace) FD() int { return -1 }

// Close does nothing.
func (n *Namespace) Close() error { return nil }

// Do returns an error.
func (n *Namespace) Do(func() error) error { return errSystem() }

// Sysctl returns an error.
func (n *Namespace) Sysctl(string) (string, error) { return "", errSystem() }

// SetSysctl returns an error.
func (n *Namespace) SetSysctl(string, string) (string, error) { return "", errSystem() }

// AddVIPs returns an error.
func (n *Namespace) AddVIPs(string, []netip.Addr) ([]netip.Addr, error) { return nil, errSystem() }

// RemoveVIPs returns an error.
func (n *Namespace) RemoveVIPs(string, []netip.Addr) ([]netip.Addr, error) { return nil, errSystem() }

// ListVIPs returns an error.
func (n *Namespace) ListVIPs(string) ([]VIP, error) { return nil, errSystem() }

// ReadFacts returns an error.
func (n *Namespace) ReadFacts(Needs) (Facts, error) { return Facts{}, errSystem() }
