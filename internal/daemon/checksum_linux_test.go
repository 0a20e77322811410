package daemon

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lbd-project/lbd/internal/config"
	"github.com/lbd-project/lbd/internal/netnstest"
	"github.com/lbd-project/lbd/internal/sysnet"
)

// Who has services with passive is told where packets with wrong checksums count.
func TestNetnsChecksumWarning(t *testing.T) {
	netnstest.Require(t, "netns")
	ns := netnstest.New(t)
	n, err := sysnet.OpenNamespace(ns.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	for _, test := range []struct {
		checksum string
		passive  config.Passive
		want     bool
	}{
		{"1", config.Passive{Window: time.Second}, false},
		{"0", config.Passive{}, false},
		{"0", config.Passive{Window: time.Second}, true},
	} {
		ns.SetSysctl("net.netfilter.nf_conntrack_checksum", test.checksum)
		c := conf(service(vip, server(rs2, 1)))
		c.VirtualServices[0].Passive = test.passive
		list := host{Namespace: n}.Warnings(c)
		got := slices.ContainsFunc(list, func(w string) bool { return strings.Contains(w, "nf_conntrack_checksum") })
		if got != test.want {
			t.Errorf("checksum %s, passive %v: want a warning: %v, got %q", test.checksum, test.passive.On(), test.want, list)
		}
	}
}
