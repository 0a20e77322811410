package netnstest

import (
	"os"
	"path/filepath"
	"strings"
)

// SetSysctl writes a sysctl of the namespace, such as "net.ipv4.ip_forward". A
// device name with dots is written with slashes: "net/ipv4/conf/eth0.1/...".
func (n *NS) SetSysctl(key, value string) {
	n.t.Helper()
	if err := n.writeSysctl(key, value); err != nil {
		n.t.Fatalf("set %s to %s: %v", key, value, err)
	}
}

// Sysctl reads a sysctl of the namespace, without the line's end.
func (n *NS) Sysctl(key string) string {
	n.t.Helper()
	var b []byte
	err := n.Do(func() (err error) {
		b, err = os.ReadFile(sysctlPath(key))
		return err
	})
	if err != nil {
		n.t.Fatalf("read %s: %v", key, err)
	}
	return strings.TrimSpace(string(b))
}

// setSysctlIfThere is for settings of parts that a kernel may lack, such as IPv6.
func (n *NS) setSysctlIfThere(key, value string) {
	n.t.Helper()
	if err := n.writeSysctl(key, value); err != nil && !os.IsNotExist(err) {
		n.t.Fatalf("set %s to %s: %v", key, value, err)
	}
}

func (n *NS) writeSysctl(key, value string) error {
	return n.Do(func() error {
		// No O_CREATE: an absent sysctl is "no such file", not "not permitted".
		f, err := os.OpenFile(sysctlPath(key), os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = f.WriteString(value)
		return err
	})
}

// sysctlPath takes the thread's view of /proc/sys/net: the kernel shows each
// opener the settings of its own namespace.
func sysctlPath(key string) string {
	if !strings.Contains(key, "/") {
		key = strings.ReplaceAll(key, ".", "/")
	}
	return filepath.Join("/proc/sys", key)
}
