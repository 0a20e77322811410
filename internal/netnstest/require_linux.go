package netnstest

import (
	"fmt"
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
//
// Each is tried, not guessed.
func Require(t testing.TB, features ...string) {
	t.Helper()
	require(t, probes(), features)
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
