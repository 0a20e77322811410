package api

import (
	"strconv"

	"github.com/lbd-project/lbd/ipvs"
)

// TableService returns what the table alone knows of a service and its real
// servers, in the table's order: no names, no configured weights, no health.
func TableService(e ipvs.TableEntry) Service {
	s := Service{
		Key:       e.ServiceKey.String(),
		Protocol:  "FWM",
		Family:    e.Family.String(),
		FWMark:    e.FWMark,
		Scheduler: string(e.Scheduler),
		Flags:     flagWords(e.Service.Scheduler, e.Flags),
		Stats:     TableStats(e.Stats),
	}
	if e.FWMark == 0 {
		s.Protocol = e.Protocol.String()
		s.Address = e.Address.String()
	}
	if e.Flags&ipvs.FlagPersistent != 0 {
		s.PersistenceSeconds = int(e.Persistence.Timeout.Seconds())
		s.Netmask = e.Persistence.Netmask.Text(e.Family)
	}
	s.PersistenceEngine = e.Persistence.Engine
	s.RealServers = make([]RealServer, 0, len(e.Destinations))
	for _, d := range e.Destinations {
		s.RealServers = append(s.RealServers, TableRealServer(d))
	}
	return s
}

// TableRealServer returns what the table alone knows of a real server.
func TableRealServer(d ipvs.DestinationStatus) RealServer {
	r := RealServer{
		Address:          d.Address.String(),
		Forward:          d.Forward.String(),
		ProgrammedWeight: d.Weight,
		UpperThreshold:   d.UpperThreshold,
		LowerThreshold:   d.LowerThreshold,
		Active:           d.Conns.Active,
		Inactive:         d.Conns.Inactive,
		Persistent:       d.Conns.Persistent,
		Present:          true,
		State:            "unchecked",
		Checks:           []Check{},
		Stats:            TableStats(d.Stats),
	}
	if d.Forward == ipvs.Tunnel {
		r.Tunnel = d.Tunnel.Type.String()
		if d.Tunnel.Type == ipvs.TunnelGUE {
			r.Tunnel += ":" + strconv.Itoa(int(d.Tunnel.Port))
		}
	}
	return r
}

// TableStats returns the counters of the table.
func TableStats(s ipvs.Stats) Stats {
	return Stats{
		Connections: s.Connections, PacketsIn: s.PacketsIn, PacketsOut: s.PacketsOut,
		BytesIn: s.BytesIn, BytesOut: s.BytesOut,
		ConnectionRate: s.ConnectionRate, PacketRateIn: s.PacketRateIn, PacketRateOut: s.PacketRateOut,
		ByteRateIn: s.ByteRateIn, ByteRateOut: s.ByteRateOut,
	}
}

// flagWords prints flags as ipvsadm does: the flags of sh and mh have names,
// those of other schedulers numbers, and persistence is no flag.
func flagWords(scheduler ipvs.Scheduler, f ipvs.ServiceFlags) []string {
	words := append([]string{}, f.SchedulerWords(scheduler)...)
	if f&ipvs.FlagOnePacket != 0 {
		words = append(words, "ops")
	}
	return words
}
