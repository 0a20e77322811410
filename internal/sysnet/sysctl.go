package sysnet

import (
	"fmt"
	"path/filepath"
	"strings"
)

// sysctlPath returns the file of a setting such as "net.ipv4.vs.conntrack". As
// in sysctl(8), a slash stands for a dot within a part:
// "net.ipv4.conf.eth0/100.rp_filter" is of the device eth0.100.
func sysctlPath(name string) (string, error) {
	parts := strings.Split(name, ".")
	for i, p := range parts {
		p = strings.ReplaceAll(p, "/", ".")
		if p == "" || p == "." || p == ".." || strings.ContainsRune(p, 0) {
			return "", fmt.Errorf("sysctl %q: not a name", name)
		}
		parts[i] = p
	}
	// Only these are settings of a network namespace.
	if len(parts) < 2 || parts[0] != "net" {
		return "", fmt.Errorf("sysctl %q: not below net", name)
	}
	return filepath.Join("/proc/sys", filepath.Join(parts...)), nil
}

// sysctlHint says why a setting may be missing.
func sysctlHint(name string) string {
	switch {
	case strings.HasPrefix(name, "net.ipv4.vs."):
		return " (is ip_vs loaded?)"
	case strings.HasPrefix(name, "net.netfilter.nf_conntrack"):
		return " (is nf_conntrack loaded?)"
	}
	return ""
}

// sameValue compares two values as the kernel reads them: lists of numbers may
// be apart by any white space.
func sameValue(a, b string) bool {
	return strings.Join(strings.Fields(a), " ") == strings.Join(strings.Fields(b), " ")
}
