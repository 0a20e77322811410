package ipvs

import (
	"fmt"
	"math"
	"net/netip"
	"strings"
	"syscall"
	"time"
)

const (
	// maxName is the longest name of a scheduler or a persistence engine,
	// IP_VS_SCHEDNAME_MAXLEN and IP_VS_PENAME_MAXLEN less the final zero byte.
	maxName = 15

	// maxTimeout is the longest timeout that every kernel takes: its limit is
	// INT_MAX/HZ (ip_vs_set_timeout), and HZ is at most 1000.
	maxTimeout = math.MaxInt32 / 1000 * time.Second

	allFlags = FlagPersistent | FlagOnePacket | FlagSched1 | FlagSched2 | FlagSched3
)

// invalidError says why a value is refused before anything is sent. It unwraps
// to the errno that the kernel gives for such a value, or EINVAL where the
// kernel would take it.
type invalidError struct {
	reason string
	errno  error
}

func (e *invalidError) Error() string { return e.reason }
func (e *invalidError) Unwrap() error { return e.errno }

func invalid(format string, args ...any) error {
	return &invalidError{fmt.Sprintf(format, args...), syscall.EINVAL}
}

// Validate says why k cannot be the key of a new service, or returns nil. It is
// stricter than the kernel, which takes any protocol number and addresses that
// no packet has.
func (k ServiceKey) Validate() error {
	if err := k.check(); err != nil || k.FWMark != 0 {
		return err
	}
	switch a := k.Address.Addr(); {
	case k.Protocol != TCP && k.Protocol != UDP && k.Protocol != SCTP:
		return invalid("protocol %v is not TCP, UDP or SCTP", k.Protocol)
	case a.IsUnspecified():
		return invalid("a service needs the address that clients connect to, not %v", a)
	default:
		return checkMapped(a)
	}
}

// check says why k cannot be sent to the kernel, or returns nil. It lets through
// every key that the kernel can hold: what others have made must be readable and
// deletable.
func (k ServiceKey) check() error {
	switch {
	case k.Family != IPv4 && k.Family != IPv6:
		return &invalidError{fmt.Sprintf("address family %v is neither ipv4 nor ipv6", k.Family), syscall.EAFNOSUPPORT}
	case k.FWMark != 0:
		if k.Protocol != 0 || k.Address != (netip.AddrPort{}) {
			return invalid("a fwmark service has no protocol and no address")
		}
		return nil
	case !k.Address.IsValid():
		return invalid("neither an address nor a firewall mark")
	case k.Address.Addr().Zone() != "":
		return invalid("address %v has a zone, which IPVS does not know", k.Address.Addr())
	case rawFamily(k.Address.Addr()) != k.Family:
		return invalid("address %v is not %v", k.Address.Addr(), k.Family)
	}
	return nil
}

// rawFamily returns the family that an address is sent as: a mapped address is
// an IPv6 address to the kernel.
func rawFamily(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

// Validate says why s cannot be written, or returns nil. Beyond what the kernel
// refuses, it refuses what the kernel takes and no traffic can match: a
// port 0 service that is not persistent, the scheduler "none", flags that do
// not exist.
func (s Service) Validate() error {
	if err := s.ServiceKey.Validate(); err != nil {
		return err
	}
	switch {
	case s.Scheduler == "":
		return &invalidError{"no scheduler", errNoScheduler}
	case s.Scheduler == "none":
		return invalid(`scheduler "none" never schedules`)
	case s.Flags&^allFlags != 0:
		return invalid("unknown service flags %#x", uint32(s.Flags&^allFlags))
	case s.FWMark == 0 && s.Address.Port() == 0 && s.Flags&FlagPersistent == 0:
		return invalid("port 0 needs persistence")
	}
	if err := checkName("scheduler", string(s.Scheduler)); err != nil {
		return err
	}
	return s.Persistence.validate(s.Family, s.Flags&FlagPersistent != 0)
}

func (p Persistence) validate(f Family, inForce bool) error {
	if err := checkName("persistence engine", p.Engine); err != nil {
		return err
	}
	switch {
	case p.Timeout < 0 || p.Timeout > maxTimeout:
		return invalid("persistence timeout %v is not between 0 and %v", p.Timeout, maxTimeout)
	case p.Timeout%time.Second != 0:
		return invalid("persistence timeout %v is not in whole seconds", p.Timeout)
	case inForce && p.Timeout == 0:
		return invalid("persistence with a timeout of 0 keeps nothing")
	case f == IPv6 && (p.Netmask.V6() < 1 || p.Netmask.V6() > 128):
		return invalid("persistence prefix length %d is not between 1 and 128", p.Netmask.V6())
	}
	return nil
}

// Validate says why d cannot be a real server of the service k, or returns nil.
// Beyond what the kernel refuses, it refuses what the kernel takes and then
// ignores or forwards wrongly: a forwarding method or a tunnel type that does
// not exist, tunnel options without the Tunnel method, a port other than the
// service's where the packets are not rewritten.
func (d Destination) Validate(k ServiceKey) error {
	if !d.Address.IsValid() {
		return invalid("a real server needs an address")
	}
	a := d.Address.Addr()
	if a.Zone() != "" {
		return invalid("address %v has a zone, which IPVS does not know", a)
	}
	if err := checkMapped(a); err != nil {
		return err
	}
	switch {
	case a.IsUnspecified(), a.IsMulticast(), a == broadcast:
		return invalid("%v is not the address of a host", a)
	case d.Weight > math.MaxInt32:
		return &invalidError{fmt.Sprintf("weight %d is above %d", d.Weight, math.MaxInt32), syscall.ERANGE}
	case d.UpperThreshold > math.MaxInt32 || d.LowerThreshold > math.MaxInt32:
		return invalid("a connection threshold is above %d", math.MaxInt32)
	case d.LowerThreshold > d.UpperThreshold:
		return &invalidError{fmt.Sprintf("lower threshold %d is above the upper threshold %d",
			d.LowerThreshold, d.UpperThreshold), syscall.ERANGE}
	case d.Forward > Route:
		return invalid("forwarding method %v cannot be set", d.Forward)
	case d.Forward != Tunnel && FamilyOf(a) != k.Family:
		return invalid("only the Tunnel method reaches an %v server of an %v service", FamilyOf(a), k.Family)
	case (d.Forward == Tunnel || d.Forward == Route) && k.FWMark == 0 && k.Address.Port() != 0 &&
		d.Address.Port() != k.Address.Port():
		return invalid("the %v method cannot change port %d to %d", d.Forward, k.Address.Port(), d.Address.Port())
	}
	return d.Tunnel.validate(d.Forward)
}

func (t TunnelOptions) validate(m ForwardMethod) error {
	switch {
	case t == TunnelOptions{}:
		return nil
	case m != Tunnel:
		return invalid("tunnel options need the Tunnel method, not %v", m)
	case t.Type > TunnelGRE:
		return invalid("unknown tunnel type %v", t.Type)
	case t.Type == TunnelGUE && t.Port == 0:
		return invalid("a gue tunnel needs a port")
	case t.Type != TunnelGUE && t.Port != 0:
		return invalid("an %v tunnel has no port", t.Type)
	case t.Checksum > ChecksumRemote:
		return invalid("unknown tunnel checksum %v", t.Checksum)
	case t.Type == TunnelIPIP && t.Checksum != ChecksumNone:
		return invalid("an ipip tunnel has no checksum")
	case t.Type == TunnelGRE && t.Checksum == ChecksumRemote:
		return invalid("only a gue tunnel has remote checksums")
	}
	return nil
}

// Validate says why op cannot be executed, or returns nil. A delete needs no
// more than keys that the kernel can hold.
func (op Op) Validate() error {
	switch op.Kind {
	case OpAddService, OpUpdateService:
		return op.Service.Validate()
	case OpDeleteService:
		return op.Service.ServiceKey.check()
	case OpAddDestination, OpUpdateDestination:
		if err := op.Service.ServiceKey.Validate(); err != nil {
			return err
		}
		return op.Destination.Validate(op.Service.ServiceKey)
	case OpDeleteDestination:
		a := op.Destination.Address
		switch err := op.Service.ServiceKey.check(); {
		case err != nil:
			return err
		case !a.IsValid():
			return invalid("a real server needs an address")
		case a.Addr().Zone() != "":
			return invalid("address %v has a zone, which IPVS does not know", a.Addr())
		}
		return nil
	}
	return &invalidError{fmt.Sprintf("unknown operation %v", op.Kind), syscall.EOPNOTSUPP}
}

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// checkMapped refuses an IPv4 address in IPv6 form: it would be another address
// to the kernel.
func checkMapped(a netip.Addr) error {
	if a.Is4In6() {
		return invalid("write %v as %v", a, a.Unmap())
	}
	return nil
}

// checkName refuses a name that does not fit or would be cut.
func checkName(what, name string) error {
	switch {
	case len(name) > maxName:
		return invalid("%s name %q is longer than %d bytes", what, name, maxName)
	case strings.IndexByte(name, 0) >= 0:
		return invalid("%s name %q has a zero byte", what, name)
	}
	return nil
}
