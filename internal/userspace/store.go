package userspace

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/lbd-project/lbd/ipvs"
)

// storeVersion is raised when a field changes its meaning.
const storeVersion = 1

// stored is what the store has, as JSON. Times are whole seconds.
type stored struct {
	Version     int                     `json:"version"`
	MarkMask    uint32                  `json:"mark_mask"`
	Timeouts    storedTimeouts          `json:"timeouts"`
	Sysctls     map[string]int          `json:"sysctls"`
	HostSysctls map[string]storedSysctl `json:"host_sysctls,omitempty"`
	Services    []storedService         `json:"services"`
	Dead        []storedDead            `json:"dead,omitempty"`
}

type storedTimeouts struct {
	TCP    int64 `json:"tcp"`
	TCPFin int64 `json:"tcp_fin"`
	UDP    int64 `json:"udp"`
}

type storedSysctl struct {
	Before string `json:"before"`
	Set    string `json:"set"`
}

type storedKey struct {
	Family   ipvs.Family    `json:"family"`
	Protocol ipvs.Protocol  `json:"protocol,omitempty"`
	Address  netip.AddrPort `json:"address"`
	FWMark   uint32         `json:"fwmark,omitempty"`
}

type storedService struct {
	storedKey
	ID        uint32            `json:"id"`
	Scheduler ipvs.Scheduler    `json:"scheduler"`
	Flags     ipvs.ServiceFlags `json:"flags,omitempty"`
	Timeout   int64             `json:"persistence_timeout,omitempty"`
	Netmask   string            `json:"netmask,omitempty"`
	Servers   []storedServer    `json:"servers"`
}

type storedServer struct {
	ID             uint32              `json:"id"`
	Address        netip.AddrPort      `json:"address"`
	Weight         uint32              `json:"weight"`
	Forward        ipvs.ForwardMethod  `json:"forward"`
	TunnelType     ipvs.TunnelType     `json:"tunnel_type,omitempty"`
	TunnelPort     uint16              `json:"tunnel_port,omitempty"`
	TunnelChecksum ipvs.TunnelChecksum `json:"tunnel_checksum,omitempty"`
	Upper          uint32              `json:"upper,omitempty"`
	Lower          uint32              `json:"lower,omitempty"`
}

type storedDead struct {
	Service   storedKey `json:"service"`
	ServiceID uint32    `json:"service_id"`
	storedServer
}

// save writes a state, with the engine's settings, to the store, unless it is what
// the store has: a disk that is full must not keep an engine from opening.
func (e *Engine) save(st *state) error {
	s := stored{
		Version: storeVersion, MarkMask: e.marks.mask,
		Timeouts: storedTimeouts{
			int64(e.timeouts.TCP / time.Second), int64(e.timeouts.TCPFin / time.Second), int64(e.timeouts.UDP / time.Second),
		},
		Sysctls:  make(map[string]int),
		Services: make([]storedService, 0, len(st.services)),
	}
	for _, name := range sysctlNames {
		s.Sysctls[name], _ = e.sysctls.get(name)
	}
	for name, saved := range e.hostSysctls {
		if s.HostSysctls == nil {
			s.HostSysctls = make(map[string]storedSysctl)
		}
		s.HostSysctls[name] = storedSysctl(saved)
	}
	for i := range st.services {
		s.Services = append(s.Services, storeService(&st.services[i]))
	}
	for _, d := range st.dead {
		s.Dead = append(s.Dead, storedDead{storeKey(d.service), d.serviceID, storeServer(&d.serverState)})
	}
	b, err := json.Marshal(&s)
	if err != nil {
		return err
	}
	if bytes.Equal(b, e.saved) {
		return nil
	}
	e.saved = nil
	if err := e.opt.Store.Save(b); err != nil {
		return err
	}
	e.saved = b
	return nil
}

func storeKey(k ipvs.ServiceKey) storedKey {
	return storedKey{k.Family, k.Protocol, k.Address, k.FWMark}
}

func storeService(s *serviceState) storedService {
	out := storedService{
		storedKey: storeKey(s.ServiceKey), ID: s.id, Scheduler: s.Scheduler, Flags: s.Flags,
		Timeout: int64(s.Persistence.Timeout / time.Second),
		Servers: make([]storedServer, len(s.servers)),
	}
	if s.Persistence.Netmask != (ipvs.Netmask{}) {
		out.Netmask = s.Persistence.Netmask.Text(s.Family)
	}
	for i := range s.servers {
		out.Servers[i] = storeServer(&s.servers[i])
	}
	return out
}

func storeServer(s *serverState) storedServer {
	return storedServer{
		ID: s.id, Address: s.Address, Weight: s.Weight, Forward: s.Forward,
		TunnelType: s.Tunnel.Type, TunnelPort: s.Tunnel.Port, TunnelChecksum: s.Tunnel.Checksum,
		Upper: s.UpperThreshold, Lower: s.LowerThreshold,
	}
}

// errOtherMask says that the numbers in a store are of other marks.
var errOtherMask = errors.New("it is of another mark_mask")

// decodeStore reads what save wrote. Whatever else the bytes are, it returns an
// error.
func decodeStore(b []byte) (*stored, error) {
	var s stored
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("text after the end")
	}
	if s.Version != storeVersion {
		return nil, fmt.Errorf("version %d, want %d", s.Version, storeVersion)
	}
	for name := range s.HostSysctls {
		if name != ctEvents && name != ctAcct && name != ctTimestamp {
			return nil, fmt.Errorf("host setting %q is not one that the engine changes", name)
		}
	}
	return &s, nil
}
