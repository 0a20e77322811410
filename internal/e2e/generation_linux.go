package e2e

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/lbd-project/lbd/internal/netnstest"
)

// generation returns how often the nftables rules of a namespace have changed.
func generation(ns *netnstest.NS) (uint32, error) {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: ns.FD()})
	if err != nil {
		return 0, err
	}
	defer c.Close()
	answers, err := c.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETGEN, Flags: netlink.Request},
		Data:   []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, 0},
	})
	if err != nil {
		return 0, fmt.Errorf("read nftables generation: %w", err)
	}
	const header = 4 // struct nfgenmsg
	for _, m := range answers {
		if len(m.Data) < header {
			continue
		}
		a, err := netlink.NewAttributeDecoder(m.Data[header:])
		if err != nil {
			return 0, err
		}
		a.ByteOrder = binary.BigEndian
		for a.Next() {
			if a.Type() == unix.NFTA_GEN_ID {
				return a.Uint32(), a.Err()
			}
		}
	}
	return 0, errors.New("read nftables generation: the answer has none")
}
