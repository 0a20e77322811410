package healthcheck

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Via is how the packets of a probe leave the host. It is comparable, and its Key
// is a part of that of each Method that uses it. The zero value leaves everything
// to the routes of the host.
type Via struct {
	// Source is the local address, of the target's family; the zero Addr lets
	// the kernel choose.
	Source netip.Addr
	// Interface is the device that the packets have to take (SO_BINDTODEVICE),
	// empty for any. Link-local targets need it.
	Interface string
	// Mark is the packets' mark (SO_MARK), for rules that route or tunnel them;
	// 0 is none. Setting it needs CAP_NET_ADMIN.
	Mark uint32
	// NetNS is the network namespace by its name, as ip-netns(8) knows it, or
	// by an absolute path; empty for that of Env. Entering it needs
	// CAP_SYS_ADMIN. It is looked up for each probe, so it may come and go.
	NetNS string
}

// Key returns the options that are set in the form " source=192.0.2.1
// interface=eth1 mark=0x1f netns=blue", empty for the zero value.
func (v Via) Key() string {
	if v == (Via{}) {
		return ""
	}
	var b strings.Builder
	if v.Source.IsValid() {
		b.WriteString(" source=" + v.Source.Unmap().String())
	}
	if v.Interface != "" {
		b.WriteString(" interface=" + quote(v.Interface))
	}
	if v.Mark != 0 {
		b.WriteString(" mark=0x" + strconv.FormatUint(uint64(v.Mark), 16))
	}
	if v.NetNS != "" {
		b.WriteString(" netns=" + quote(v.NetNS))
	}
	return b.String()
}

// quote quotes s where it could be taken for something else in a key.
func quote(s string) string {
	if q := strconv.Quote(s); strings.Contains(s, " ") || len(q) != len(s)+2 {
		return q
	}
	return s
}

// Validate says why a probe of target cannot leave in this way, or that target is
// not the address of a host. It does not look at the host that it runs on.
func (v Via) Validate(target netip.Addr) error {
	target = target.Unmap()
	switch {
	case !target.IsValid():
		return errors.New("no address")
	case !host(target):
		// Linux takes the unspecified address for the host itself.
		return errors.New("not the address of a host")
	case target.Zone() != "":
		return errors.New("an address with a zone is not supported")
	case target.Is6() && target.IsLinkLocalUnicast() && v.Interface == "":
		return errors.New("a link-local address needs an interface")
	}
	if source := v.Source.Unmap(); source.IsValid() {
		switch {
		case source.Is4() != target.Is4():
			return fmt.Errorf("source %v is not of the target's address family", source)
		case source.Zone() != "":
			return fmt.Errorf("source %v: an address with a zone is not supported", source)
		case !host(source):
			return fmt.Errorf("source %v is not the address of a host", source)
		}
	}
	if v.Interface != "" && !goodInterface(v.Interface) {
		return fmt.Errorf("interface %q is not the name of an interface", v.Interface)
	}
	if v.NetNS != "" && !goodNamespace(v.NetNS) {
		return fmt.Errorf("netns %q is neither a name nor an absolute path", v.NetNS)
	}
	return nil
}

// host reports whether a can be the address of one host.
func host(a netip.Addr) bool {
	return !a.IsUnspecified() && !a.IsMulticast() && a != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

// goodInterface follows dev_valid_name of the kernel's net/core/dev.c.
func goodInterface(name string) bool {
	return len(name) < 16 && name != "." && name != ".." && !strings.ContainsAny(name, "/: \t\n\v\f\r\x00")
}

func goodNamespace(name string) bool {
	if strings.Contains(name, "\x00") || name == "." || name == ".." {
		return false
	}
	return name[0] == '/' || !strings.Contains(name, "/")
}
