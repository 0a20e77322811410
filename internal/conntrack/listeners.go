package conntrack

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

const (
	protocolNetfilter = 12 // NETLINK_NETFILTER
	groupsMask        = 1<<(groupNew-1) | 1<<(groupUpdate-1) | 1<<(groupDestroy-1)
)

// parseListeners returns the inodes of the sockets in /proc/net/netlink that are
// in a group of conntrack events. Its columns are, by name, in
// net/netlink/af_netlink.c, netlink_native_seq_show.
func parseListeners(r io.Reader) ([]uint64, error) {
	var inodes []uint64
	sc := bufio.NewScanner(r)
	if !sc.Scan() {
		return nil, fmt.Errorf("no header line: %w", errOr(sc.Err(), io.ErrUnexpectedEOF))
	}
	column := make(map[string]int)
	for i, name := range strings.Fields(sc.Text()) {
		column[name] = i
	}
	for _, name := range []string{"Eth", "Groups", "Inode"} {
		if _, ok := column[name]; !ok {
			return nil, fmt.Errorf("no column %q", name)
		}
	}
	for line := 2; sc.Scan(); line++ {
		fields := strings.Fields(sc.Text())
		if len(fields) != len(column) {
			return nil, fmt.Errorf("line %d: %d fields, not %d", line, len(fields), len(column))
		}
		if fields[column["Eth"]] != strconv.Itoa(protocolNetfilter) {
			continue
		}
		// Only the first 32 groups are shown.
		groups, err := strconv.ParseUint(fields[column["Groups"]], 16, 32)
		if err != nil {
			return nil, fmt.Errorf("line %d: groups: %w", line, err)
		}
		inode, err := strconv.ParseUint(fields[column["Inode"]], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("line %d: inode: %w", line, err)
		}
		if groups&groupsMask != 0 {
			inodes = append(inodes, inode)
		}
	}
	return inodes, sc.Err()
}

func errOr(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}
