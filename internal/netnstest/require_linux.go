package netnstest

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// requireEnv lists the features, with commas, that must be there: a tier sets it
// so that it cannot pass by skipping.
const requireEnv = "LBD_TEST_REQUIRE"

// Require skips the test where a feature is missing, and fails it instead when
// LBD_TEST_REQUIRE names the feature. The features are
//
//	netns    network namespaces can be made and set up
//	ipvs     the kernel answers for IPVS (looking it up loads the module)
//	nfqueue  the kernel answers for NFQUEUE
//	ipip     the kernel has devices of IPv4 in IPv4
//
// Each is tried, not guessed.
func Require(t testing.TB, features ...string) {
	t.Helper()
	require(t, probes(), features)
}

// Have returns why a feature of Require is missing, nil if it is there.
func Have(feature string) error {
	probe, ok := probes()[feature]
	if !ok {
		return fmt.Errorf("unknown feature %q", feature)
	}
	return probe()
}

func require(t testing.TB, probes map[string]func() error, features []string) {
	t.Helper()
	for _, f := range features {
		probe, ok := probes[f]
		if !ok {
			t.Fatalf("netnstest.Require: unknown feature %q", f)
		}
		err := probe()
		if err == nil {
			continue
		}
		if slices.Contains(strings.Split(os.Getenv(requireEnv), ","), f) {
			t.Fatalf("%s requires %s: %v", requireEnv, f, err)
		}
		t.Skipf("no %s here: %v", f, err)
	}
}

func probes() map[string]func() error {
	return map[string]func() error{
		"netns":   probeNetNS,
		"ipvs":    probeIPVS,
		"nfqueue": probeNFQueue,
		"ipip":    probeIPIP,
	}
}

func probeNetNS() error {
	fd, err := unshare()
	if err != nil {
		return err
	}
	return fd.Close()
}

// inFreshNS runs a probe in a namespace of its own, where one can be made.
func inFreshNS(probe func() error) error {
	fd, err := unshare()
	if err != nil {
		return err
	}
	defer fd.Close()
	return (&NS{fd: fd}).Do(probe)
}

func probeIPVS() error {
	return inFreshNS(func() error {
		if _, err := netlink.GenlFamilyGet("IPVS"); err != nil {
			return fmt.Errorf("look up generic netlink family IPVS: %w", err)
		}
		return nil
	})
}

func probeIPIP() error {
	return inFreshNS(func() error {
		l := &netlink.Iptun{LinkAttrs: netlink.LinkAttrs{Name: "ipip"}, Local: net.IPv4(127, 0, 0, 1)}
		if err := netlink.LinkAdd(l); err != nil {
			return fmt.Errorf("add an ipip device: %w", err)
		}
		return nil
	})
}

// From include/uapi/linux/netfilter/nfnetlink.h and nfnetlink_queue.h.
const (
	subsysQueue      = 3 // NFNL_SUBSYS_QUEUE
	msgConfig        = 2 // NFQNL_MSG_CONFIG
	attrConfigCmd    = 1 // NFQA_CFG_CMD
	configCmdBind    = 1 // NFQNL_CFG_CMD_BIND
	probeQueueNumber = 65535
)

// probeNFQueue binds a queue in a fresh namespace, where no other program can
// hold it.
func probeNFQueue() error {
	return inFreshNS(func() error {
		req := nl.NewNetlinkRequest(subsysQueue<<8|msgConfig, unix.NLM_F_ACK)
		// The queue number travels in the header's resource id.
		req.AddData(&nl.Nfgenmsg{
			NfgenFamily: unix.AF_UNSPEC,
			Version:     nl.NFNETLINK_V0,
			ResId:       probeQueueNumber,
		})
		// struct nfqnl_msg_config_cmd: command, padding, protocol family.
		req.AddData(nl.NewRtAttr(attrConfigCmd, []byte{configCmdBind, 0, 0, 0}))
		if _, err := req.Execute(unix.NETLINK_NETFILTER, 0); err != nil {
			return fmt.Errorf("bind an NFQUEUE: %w", err)
		}
		return nil
	})
}
