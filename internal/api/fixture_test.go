package api

import "time"

// fixture is a backend in which every field of every answer is set.
func fixture() *fakeBackend {
	at := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	stats := Stats{
		Connections: 1, PacketsIn: 2, PacketsOut: 3, BytesIn: 4, BytesOut: 5,
		ConnectionRate: 6, PacketRateIn: 7, PacketRateOut: 8, ByteRateIn: 9, ByteRateOut: 10,
	}
	weight := uint32(0) // which is not none
	admin := Admin{
		Mode: "drain", Weight: &weight, RampSeconds: 1.5, By: "alice (uid 1000)", Since: at.Add(-time.Hour), Deadline: at.Add(time.Hour),
	}
	return &fakeBackend{
		status: Status{
			Version: "v1.2.3", PID: 4711, UptimeSeconds: 3600.5, Time: at,
			Engine: "kernel", EngineReason: "the kernel has IPVS", EngineVersion: "1.2.1",
			ConfigFile: "/etc/lbd/lbd.yaml", ConfigLoaded: at.Add(-time.Hour), ConfigSHA256: "ab12",
			LastReloadError: "lbd.yaml:3:5: unknown key \"sheduler\"",
			Sync: Sync{
				LastSuccess: at.Add(-time.Second), AgeSeconds: 1, LastError: "ENOBUFS", Passes: 120, Ops: 40, FailedOps: 2,
				HeartbeatSeconds: 0.25, Drift: 1, LastDrift: "added TCP 192.0.2.10:80", LastDriftTime: at.Add(-time.Minute),
			},
			Checks: Checks{
				Probes: 12, Running: 3, Waiting: 1, Overdue: 2, Results: 5000, Failures: 40, Skipped: 2,
				LagSeconds: 0.001, LagMaxSeconds: 0.25, HeartbeatSeconds: 0.5,
			},
			Policies:    Policies{QuorumLost: 2, BackupIn: 1, HealthIgnored: 1, Ramping: 3},
			Mirror:      Mirror{CountsAgeSeconds: 0.5, StatsAgeSeconds: 8, LastError: "read /proc/net/ip_vs: EINTR"},
			Services:    Counts{Total: 5, Up: 2, Down: 1, Pending: 1, Draining: 1},
			RealServers: Counts{Total: 13, Up: 4, Down: 3, Pending: 1, Draining: 1, Drained: 1, Disabled: 1, Standby: 1, Ejected: 1},
			Overrides:   Overrides{RealServers: 2, File: "/var/lib/lbd/state.json", LastError: "ENOSPC"},
			Hooks: []Hook{{
				Name: "/usr/local/sbin/page", Kind: HookExec, Told: 40, Lost: 3, Waiting: 2, WaitingSeconds: 12.5, Failures: 4,
				LastError: "run /usr/local/sbin/page: exit status 1", LastErrorTime: at.Add(-time.Minute),
			}},
			Foreign:  []string{"TCP 192.0.2.99:22"},
			Sysctls:  map[string]int{"expire_nodest_conn": 1, "conntrack": 1},
			Warnings: []string{"ip_forward is off"},
		},
		services: []Service{
			{
				Name: "web", Key: "TCP 192.0.2.10:80", Protocol: "TCP", Address: "192.0.2.10:80", Family: "ipv4",
				Scheduler: "wlc", Flags: []string{"ops"}, PersistenceSeconds: 300, Netmask: "255.255.255.0",
				PersistenceEngine: "sip", Quorum: "lost", BackupIn: true, HealthIgnored: true, Stats: stats,
				RealServers: []RealServer{{
					Address: "10.0.0.2:80", Forward: "Tunnel", Tunnel: "gue:6080", ProgrammedWeight: 0, ConfiguredWeight: 3,
					UpperThreshold: 100, LowerThreshold: 75, Active: 7, Inactive: 8, Persistent: 9, Present: true,
					State: "drained", StateSeconds: 12.5, Reason: "drained by alice (uid 1000)", Admin: admin, Backup: true, Ramping: true, HealthIgnored: true,
					Checks: []Check{{
						Probe: "tcp 10.0.0.2:80", State: "down", Detail: "connection refused", Warning: "the certificate has expired",
						LatencySeconds: 0.001, AgeSeconds: 2, Checks: 100, Failures: 3,
					}},
					Stats: stats,
				}},
			},
			{Name: "[2001:db8::10]:80", Key: "TCP [2001:db8::10]:80", Protocol: "TCP", Address: "[2001:db8::10]:80", Family: "ipv6", Scheduler: "rr"},
			{Name: "a/b%2F é", Key: "FWM 7", Protocol: "FWM", FWMark: 7, Family: "ipv4", Scheduler: "sh"},
			{Key: "UDP 192.0.2.9:53", Foreign: true, Protocol: "UDP", Address: "192.0.2.9:53", Family: "ipv4", Scheduler: "rr"},
		},
		table: []Service{{Key: "TCP 192.0.2.10:80", Protocol: "TCP", Address: "192.0.2.10:80", Family: "ipv4", Scheduler: "wlc"}},
		conns: []Connection{
			{
				Service: "web", Protocol: "TCP", Client: "198.51.100.1:40000", Virtual: "192.0.2.10:80", RealServer: "10.0.0.2:8080",
				State: "ESTABLISHED", ExpiresSeconds: 899, PersistenceEngine: "sip", PersistenceData: "call<1>",
			},
			{Protocol: "IP", Client: "198.51.100.0:0", Virtual: "FWM 7", RealServer: "10.0.0.2:0", State: "NONE", Template: true},
		},
		events: []Event{
			{Seq: 41, Time: at, Kind: EventAdmin, Service: "web", Key: "TCP 192.0.2.10:80", RealServer: "10.0.0.2:80", Text: "drained", Reason: "maintenance", By: "alice (uid 1000)"},
			{Seq: 43, Time: at, Kind: EventReload, State: StateLoaded, Text: "configuration loaded"},
		},
		explained: Explanation{
			Service: "web", Key: "TCP 192.0.2.10:80", Scheduler: "wlc", Compares: "connections / weight",
			Next: "10.0.0.2:80", Why: "the least score",
			RealServers: []Standing{{
				Address: "10.0.0.2:80", ConfiguredWeight: 3, ProgrammedWeight: 3, State: "up", Reason: "the check passed",
				Present: true, Active: 7, Inactive: 8, Score: "1807/3", Overloaded: true,
				Chain: []WeightStep{{Step: "configured", Weight: 3}, {Step: "admin", Weight: 3, Reason: "weight 3 by root"}, {Step: "programmed", Weight: 3}},
			}},
			Warnings: []string{"w"},
		},
		diagnosis: Diagnosis{
			Engine: "userspace", EngineReason: "the kernel has no IPVS", EngineVersion: "nftables' queue 100",
			Findings: []Finding{{Level: LevelNote, Topic: "overhead", Text: "no IPVS"}},
		},
		admin: AdminResult{
			RealServers: []AdminChange{{
				Service: "web", Key: "TCP 192.0.2.10:80", RealServer: "10.0.0.2:80", Changed: true, Change: "drained", State: "drained",
				Reason: "drained by alice (uid 1000)", Weight: 0, ActiveConnections: 7, InactiveConnections: 9, Admin: admin,
			}},
			Warnings: []string{"the service is persistent"}, Errors: []string{"not written down"},
		},
		check: CheckReport{
			Errors: []string{"lbd.yaml:1:1: e"}, HostErrors: []string{"scheduler mh: not in this kernel"}, Warnings: []string{"w"},
		},
		plan: Plan{
			Errors: []string{"e"}, Warnings: []string{"w"},
			Steps: []Step{{
				Op: "update destination", Service: "web", RealServer: "10.0.0.2:80", Change: "weight 3 -> 5", ActiveConnections: 7,
			}},
		},
		reload:    ReloadResult{Reloaded: true, Errors: []string{"e"}, Warnings: []string{"w"}, Ops: 4},
		reconcile: ReconcileResult{Steps: []Step{{Op: "add service", Service: "web"}}, Errors: []string{"e"}},
	}
}
