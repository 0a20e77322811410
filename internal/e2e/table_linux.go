package e2e

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/lbd-project/lbd/internal/netnstest"
)

// Table is the kernel's IPVS table of a namespace, services in the order of
// their text, real servers in the kernel's list order.
type Table []TableService

// TableService is a service of a Table.
type TableService struct {
	// Name is "TCP 192.0.2.10:80" or "FWM 7".
	Name string
	// Scheduler is its name with the flags that follow it: "wlc persistent".
	Scheduler string
	Servers   []TableServer
}

// TableServer is a real server of a TableService.
type TableServer struct {
	Address          netip.AddrPort
	Forward          string
	Weight           int
	Active, Inactive int
}

// ReadTable reads /proc/net/ip_vs of a namespace.
//
// It is whole up to 4096 bytes. Of a longer table the kernel gives a page a read
// and finds its place again by counting services; up to Linux 6.1 at least it
// counts those of all namespaces on the way and only its own when it starts
// again (ip_vs_info_seq_next and ip_vs_info_array in
// net/netfilter/ipvs/ip_vs_ctl.c), so that services are missing where other
// namespaces have some, too.
func ReadTable(n *netnstest.NS) (Table, error) {
	var b bytes.Buffer
	err := n.Do(func() error {
		f, err := os.Open("/proc/thread-self/net/ip_vs")
		if err != nil {
			return err
		}
		defer f.Close()
		// A read of less than a page would make the kernel start again, too.
		_, err = io.CopyBuffer(struct{ io.Writer }{&b}, struct{ io.Reader }{f}, make([]byte, 1<<20))
		return err
	})
	if err != nil {
		return nil, err
	}
	return parseTable(b.String())
}

// String prints a service a line, its servers indented below:
//
//	TCP 192.0.2.10:80 wlc
//	  10.0.0.2:80 Masq 3
func (t Table) String() string { return t.text(false) }

// WithCounts is String with active and inactive connections at the end of each
// server's line.
func (t Table) WithCounts() string { return t.text(true) }

func (t Table) text(counts bool) string {
	var b strings.Builder
	for _, s := range t {
		fmt.Fprintf(&b, "%s %s\n", s.Name, s.Scheduler)
		for _, r := range s.Servers {
			fmt.Fprintf(&b, "  %v %s %d", r.Address, r.Forward, r.Weight)
			if counts {
				fmt.Fprintf(&b, " %d %d", r.Active, r.Inactive)
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// parseTable reads the text that ip_vs_info_seq_show in the kernel's
// net/netfilter/ipvs/ip_vs_ctl.c writes.
func parseTable(text string) (Table, error) {
	var t Table
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		switch {
		case len(f) >= 3 && slices.Contains([]string{"TCP", "UDP", "SCTP"}, f[0]):
			ap, err := parseHexAddr(f[1])
			if err != nil {
				return nil, fmt.Errorf("%q: %w", line, err)
			}
			t = append(t, TableService{Name: f[0] + " " + ap.String(), Scheduler: schedulerText(f[2:])})
		case len(f) >= 3 && f[0] == "FWM":
			mark, err := strconv.ParseUint(f[1], 16, 32)
			if err != nil {
				return nil, fmt.Errorf("%q: %w", line, err)
			}
			t = append(t, TableService{Name: fmt.Sprintf("FWM %d", mark), Scheduler: schedulerText(f[2:])})
		case len(f) == 6 && f[0] == "->" && len(t) > 0:
			r, err := parseServer(f)
			if err != nil {
				return nil, fmt.Errorf("%q: %w", line, err)
			}
			s := &t[len(t)-1]
			s.Servers = append(s.Servers, r)
		}
	}
	slices.SortFunc(t, func(a, b TableService) int { return strings.Compare(a.Name, b.Name) })
	return t, nil
}

// schedulerText prints "wlc", "rr ops" or "wlc persistent", with a mask at the
// end unless it covers the whole address. The kernel's time-out is left out: it
// is in ticks, whose length /proc does not say.
func schedulerText(f []string) string {
	out := []string{f[0]}
	for i := 1; i < len(f); i++ {
		out = append(out, f[i])
		if f[i] == "persistent" && i+2 < len(f) {
			i += 2
			if mask := f[i]; mask != "FFFFFFFF" && mask != "80000000" {
				out = append(out, mask)
			}
		}
	}
	return strings.Join(out, " ")
}

func parseServer(f []string) (TableServer, error) {
	ap, err := parseHexAddr(f[1])
	if err != nil {
		return TableServer{}, err
	}
	r := TableServer{Address: ap, Forward: f[2]}
	for i, p := range []*int{&r.Weight, &r.Active, &r.Inactive} {
		if *p, err = strconv.Atoi(f[3+i]); err != nil {
			return TableServer{}, err
		}
	}
	return r, nil
}

// parseHexAddr reads "C000020A:0050" and "[2001:0db8:...:0010]:0050".
func parseHexAddr(s string) (netip.AddrPort, error) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return netip.AddrPort{}, fmt.Errorf("address %q has no port", s)
	}
	port, err := strconv.ParseUint(s[i+1:], 16, 16)
	if err != nil {
		return netip.AddrPort{}, err
	}
	var addr netip.Addr
	if v6, ok := strings.CutPrefix(s[:i], "["); ok {
		addr, err = netip.ParseAddr(strings.TrimSuffix(v6, "]"))
	} else {
		var b []byte
		if b, err = hex.DecodeString(s[:i]); err == nil && len(b) == 4 {
			addr = netip.AddrFrom4([4]byte(b))
		}
	}
	if err == nil && !addr.IsValid() {
		err = fmt.Errorf("bad address %q", s)
	}
	return netip.AddrPortFrom(addr, uint16(port)), err
}
