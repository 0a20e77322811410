package vmtest

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/lbd-project/lbd/internal/netnstest"
	"github.com/lbd-project/lbd/internal/vm/probe"
	"golang.org/x/sys/unix"
)

func TestKernelRoot(t *testing.T) {
	netnstest.Require(t, "ipvs")
	if uid := os.Geteuid(); uid != 0 {
		t.Errorf("effective user = %d, want 0", uid)
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := [2]unix.CapUserData{}
	if err := unix.Capget(&head, &data[0]); err != nil {
		t.Fatal(err)
	}
	have := data[0]
	if have.Effective&(1<<unix.CAP_NET_ADMIN) == 0 {
		t.Errorf("effective capabilities = %#x, want CAP_NET_ADMIN among them", have.Effective)
	}
}

func TestKernelLoopbackIsUp(t *testing.T) {
	netnstest.Require(t, "ipvs")
	i, err := net.InterfaceByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	if i.Flags&net.FlagUp == 0 {
		t.Fatalf("lo has flags %v, want up", i.Flags)
	}
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		c, err := net.DialTimeout("tcp", l.Addr().String(), 10*time.Second)
		if err != nil {
			t.Errorf("connect to %s: %v", l.Addr(), err)
		} else {
			c.Close()
		}
		l.Close()
	}
}

func TestKernelHasIPVS(t *testing.T) {
	netnstest.Require(t, "ipvs")
	if err := probe.IPVS(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("/proc/net/ip_vs"); err != nil {
		t.Error(err)
	}
}

func TestKernelLoadsSchedulers(t *testing.T) {
	netnstest.Require(t, "ipvs")
	const vip = "192.0.2.1:80"
	for _, name := range []string{"wlc", "mh", "ovf"} {
		ipvsadm(t, "-A", "-t", vip, "-s", name)
		ipvsadm(t, "-D", "-t", vip)
		if _, err := os.Stat("/sys/module/ip_vs_" + name); err != nil {
			t.Errorf("scheduler %s was accepted, but its module is absent: %v", name, err)
		}
	}
}

func TestKernelLoadsLinks(t *testing.T) {
	netnstest.Require(t, "ipvs")
	// Each kind is a module of its own, or two, that the kernel asks for by an
	// alias.
	for kind, args := range map[string]string{
		"dummy":   "",
		"veth":    "peer name x1",
		"ipip":    "local 192.0.2.1 remote 192.0.2.2",
		"gre":     "local 192.0.2.1 remote 192.0.2.2",
		"sit":     "local 192.0.2.1 remote 192.0.2.2",
		"ip6tnl":  "local 2001:db8::1 remote 2001:db8::2",
		"bridge":  "",
		"macvlan": "link d0",
		"vxlan":   "id 7 remote 192.0.2.2 dstport 4789",
	} {
		t.Run(kind, func(t *testing.T) {
			if strings.Contains(args, "d0") {
				command(t, "ip", "link", "add", "d0", "type", "dummy")
				defer command(t, "ip", "link", "del", "d0")
			}
			head := []string{"link", "add", "x0"}
			if rest, ok := strings.CutPrefix(args, "link d0"); ok {
				head, args = []string{"link", "add", "link", "d0", "name", "x0"}, rest
			}
			command(t, "ip", append(append(head, "type", kind), strings.Fields(args)...)...)
			command(t, "ip", "link", "del", "x0")
		})
	}
	// The family of fou has no alias: whoever wants it loads it.
	command(t, "modprobe", "fou")
	command(t, "ip", "fou", "add", "port", "5555", "gue")
	command(t, "ip", "fou", "del", "port", "5555")
}

func TestKernelLoadsNetfilter(t *testing.T) {
	netnstest.Require(t, "ipvs")
	command(t, "nft", "add table inet lbdtest; add chain inet lbdtest on_demand { ct state new counter; }")
	// The kernel starts a batch anew after each module that it loads, and asks
	// again for all modules so far: dozens of calls for the rules below. So do
	// as one should in a guest, and load them beforehand.
	command(t, "modprobe", "-a", "nft_chain_nat", "nft_nat", "nft_log", "nft_limit", "nft_queue",
		"nft_numgen", "nft_socket", "nft_fib_inet", "nft_reject_inet", "nf_log_syslog")
	const rules = `table inet lbdtest {
		map pick { type mark : ipv4_addr; elements = { 1 : 192.0.2.1 } }
		chain pre {
			type nat hook prerouting priority dstnat
			dnat ip to meta mark map @pick
		}
		chain in {
			type filter hook input priority 0
			ct state new ct mark 7 counter log limit rate 5/second
			tcp dport 80 queue num 100 bypass
			numgen random mod 2 == 1
			socket transparent 1 mark set 1
			fib daddr type local accept
			reject
		}
	}`
	f := t.TempDir() + "/rules"
	if err := os.WriteFile(f, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	command(t, "nft", "-f", f)
	command(t, "nft", "delete", "table", "inet", "lbdtest")
	command(t, "conntrack", "-L")
}

func TestKernelHasSockets(t *testing.T) {
	netnstest.Require(t, "ipvs")
	for name, s := range map[string][3]int{
		"sctp":               {unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP},
		"packet":             {unix.AF_PACKET, unix.SOCK_RAW, 0},
		"netfilter netlink":  {unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER},
		"diagnostic netlink": {unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_SOCK_DIAG},
	} {
		fd, err := unix.Socket(s[0], s[1], s[2])
		if err != nil {
			t.Errorf("%s socket: %v", name, err)
			continue
		}
		unix.Close(fd)
	}
}

func ipvsadm(t *testing.T, args ...string) {
	t.Helper()
	command(t, "ipvsadm", args...)
}

func command(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Errorf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
}
