package sysnet

import "testing"

func TestSysctlPath(t *testing.T) {
	tests := []struct{ name, want, err string }{
		{"net.ipv4.vs.conntrack", "/proc/sys/net/ipv4/vs/conntrack", ""},
		{"net.ipv4.conf.eth0/100.rp_filter", "/proc/sys/net/ipv4/conf/eth0.100/rp_filter", ""},
		{"kernel.hostname", "", `sysctl "kernel.hostname": not below net`},
		{"net", "", `sysctl "net": not below net`},
		{"", "", `sysctl "": not a name`},
		{"net..ip_forward", "", `sysctl "net..ip_forward": not a name`},
		{"net.//.//.kernel.hostname", "", `sysctl "net.//.//.kernel.hostname": not a name`},
		{"net./.x", "", `sysctl "net./.x": not a name`},
		{"net.ipv4.\x00", "", `sysctl "net.ipv4.\x00": not a name`},
	}
	for _, tt := range tests {
		got, err := sysctlPath(tt.name)
		text := ""
		if err != nil {
			text = err.Error()
		}
		if got != tt.want || text != tt.err {
			t.Errorf("%q: want %q, %q, got %q, %q", tt.name, tt.want, tt.err, got, text)
		}
	}
}
