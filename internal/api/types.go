package api

import "time"

// Version is the answer of GET /v1/version.
type Version struct {
	Version   string `json:"version"`
	GoVersion string `json:"go_version"`
}

// Status is the answer of GET /v1/status.
type Status struct {
	Version string `json:"version"`
	PID     int    `json:"pid"`
	// UptimeSeconds is the time since lbd started.
	UptimeSeconds float64 `json:"uptime_seconds"`
	// Time is when the answer was made: a status is only as good as its clock.
	Time time.Time `json:"time"`
	// Engine is "kernel" or "userspace"; EngineReason says why it was chosen.
	Engine       string `json:"engine"`
	EngineReason string `json:"engine_reason"`
	// EngineVersion is the kernel's IPVS version, such as "1.2.1", or how the
	// userspace engine gets its packets.
	EngineVersion string `json:"engine_version"`
	ConfigFile    string `json:"config_file"`
	// ConfigLoaded is when the running configuration was loaded; ConfigSHA256 is
	// of its bytes.
	ConfigLoaded time.Time `json:"config_loaded"`
	ConfigSHA256 string    `json:"config_sha256"`
	// LastReloadError is why the last reload was refused; empty if it was not.
	LastReloadError string   `json:"last_reload_error,omitempty"`
	Sync            Sync     `json:"sync"`
	Mirror          Mirror   `json:"mirror"`
	Checks          Checks   `json:"checks"`
	Services        Counts   `json:"services"`
	RealServers     Counts   `json:"real_servers"`
	Policies        Policies `json:"policies"`
	// Overrides says of how many real servers an operator said something.
	Overrides Overrides `json:"overrides"`
	// Hooks are those of notify, in the order of the file.
	Hooks []Hook `json:"hooks"`
	// Foreign are the services in the table that lbd does not own.
	Foreign []string `json:"foreign"`
	// Sysctls are the net.ipv4.vs settings that lbd owns.
	Sysctls  map[string]int `json:"sysctls"`
	Warnings []string       `json:"warnings"`
}

// Sync says how well the table follows the configuration.
type Sync struct {
	// LastSuccess is the last pass without an error; zero for none yet.
	LastSuccess time.Time `json:"last_success,omitzero"`
	// AgeSeconds is the time since LastSuccess; -1 for none yet.
	AgeSeconds float64 `json:"age_seconds"`
	// LastError is sticky until the next full success.
	LastError string `json:"last_error,omitempty"`
	Passes    uint64 `json:"passes"`
	// HeartbeatSeconds is the time since the part of lbd that writes the table made
	// progress, which it does each second at least; -1 before the first time. A
	// service manager's watchdog goes by it.
	HeartbeatSeconds float64 `json:"heartbeat_seconds"`
	// Ops counts operations written, FailedOps those the table refused.
	Ops       uint64 `json:"ops"`
	FailedOps uint64 `json:"failed_ops"`
	// Drift counts repairs of changes that somebody else made; LastDrift
	// describes the last.
	Drift         uint64    `json:"drift"`
	LastDrift     string    `json:"last_drift,omitempty"`
	LastDriftTime time.Time `json:"last_drift_time,omitzero"`
}

// Mirror says how fresh the connection counts are.
type Mirror struct {
	// CountsAgeSeconds and StatsAgeSeconds are -1 before the first reading.
	CountsAgeSeconds float64 `json:"counts_age_seconds"`
	StatsAgeSeconds  float64 `json:"stats_age_seconds"`
	LastError        string  `json:"last_error,omitempty"`
}

// Checks is how well the checks keep to their times.
type Checks struct {
	// Probes is how many there are, each once however many services use it; Running
	// how many run now, Waiting how many are due and wait for a place.
	Probes  int `json:"probes"`
	Running int `json:"running"`
	Waiting int `json:"waiting"`
	// Overdue is how many still run a second after their deadline, or after a reload
	// took their probe away, and are none of Running: a file on a network file
	// system that has lost its server. They hold up no other, and lbd does not wait
	// for them when it stops.
	Overdue int `json:"overdue"`
	// Results and Failures are counted since lbd started. Skipped are the starts
	// that were left out because lbd was more than an interval late.
	Results  uint64 `json:"results"`
	Failures uint64 `json:"failures"`
	Skipped  uint64 `json:"skipped"`
	// LagSeconds is how late a check began, on average since lbd started;
	// LagMaxSeconds the most of the last 10 to 20 seconds.
	LagSeconds    float64 `json:"lag_seconds"`
	LagMaxSeconds float64 `json:"lag_max_seconds"`
	// HeartbeatSeconds is the time since the scheduler of the checks made progress,
	// which it does each second at least; -1 before the first time. A service
	// manager's watchdog goes by it.
	HeartbeatSeconds float64 `json:"heartbeat_seconds"`
}

// Policies counts what the policies of virtual services do now.
type Policies struct {
	// QuorumLost are the services that lost their quorum, BackupIn those of them
	// whose backup servers replace the others, HealthIgnored those of which so
	// little is healthy that health is ignored.
	QuorumLost    int `json:"quorum_lost"`
	BackupIn      int `json:"backup_in"`
	HealthIgnored int `json:"health_ignored"`
	// Ramping are the real servers whose weight is on its way, by a slow start or an
	// operator's word.
	Ramping int `json:"ramping"`
}

// Overrides says what is in force of what operators said, and whether a restart
// would keep it.
type Overrides struct {
	RealServers int `json:"real_servers"`
	// File is the state_file; empty where nothing is kept.
	File string `json:"file"`
	// LastError is why it could not be read or written; empty if it could.
	LastError string `json:"last_error,omitempty"`
}

// Counts are numbers of things by state.
type Counts struct {
	Total int `json:"total"`
	// Up and Down are by health, of services by whether a real server takes new
	// connections; Draining have left the configuration. Drained and
	// Disabled are so by an operator's or an agent's word, Standby wait for the
	// other tier to fail, and Ejected are out because connections failed.
	Up       int `json:"up"`
	Down     int `json:"down"`
	Pending  int `json:"pending"`
	Draining int `json:"draining"`
	Drained  int `json:"drained"`
	Disabled int `json:"disabled"`
	Standby  int `json:"standby"`
	Ejected  int `json:"ejected"`
}

// Service is a virtual service in the answer of GET /v1/services.
type Service struct {
	Name string `json:"name"`
	// Key is its identity as printed by ipvsadm: "TCP 192.0.2.10:80".
	Key string `json:"key"`
	// Foreign services are not lbd's; they have no name.
	Foreign   bool     `json:"foreign"`
	Protocol  string   `json:"protocol"`
	Address   string   `json:"address,omitempty"`
	FWMark    uint32   `json:"fwmark,omitempty"`
	Family    string   `json:"family"`
	Scheduler string   `json:"scheduler"`
	Flags     []string `json:"flags"`
	// PersistenceSeconds is 0 for a service that is not persistent.
	PersistenceSeconds int    `json:"persistence_seconds"`
	Netmask            string `json:"netmask,omitempty"`
	PersistenceEngine  string `json:"persistence_engine,omitempty"`
	// Quorum is "held" or "lost"; empty where nothing depends on it, and until the
	// checks have decided. BackupIn says that the backup servers replace the others,
	// HealthIgnored that less is healthy than fail_open_below wants.
	Quorum        string       `json:"quorum,omitempty"`
	BackupIn      bool         `json:"backup_in"`
	HealthIgnored bool         `json:"health_ignored"`
	Stats         Stats        `json:"stats"`
	RealServers   []RealServer `json:"real_servers"`
}

// RealServer is a real server of a Service.
type RealServer struct {
	Address string `json:"address"`
	// Forward is ipvsadm's word: Masq, Route, Tunnel.
	Forward string `json:"forward"`
	// Tunnel is "ipip", "gre" or "gue:PORT" with Forward Tunnel.
	Tunnel string `json:"tunnel,omitempty"`
	// ProgrammedWeight is what the table holds, ConfiguredWeight what the file
	// says. They differ while the server is down or draining.
	ProgrammedWeight uint32 `json:"programmed_weight"`
	ConfiguredWeight uint32 `json:"configured_weight"`
	UpperThreshold   uint32 `json:"upper_threshold"`
	LowerThreshold   uint32 `json:"lower_threshold"`
	Active           uint32 `json:"active"`
	Inactive         uint32 `json:"inactive"`
	Persistent       uint32 `json:"persistent"`
	// Present says whether the table holds the server now.
	Present bool `json:"present"`
	// State is "up", "down", "pending" (no result yet), "unchecked", "draining"
	// (left the configuration), "drained" or "disabled" (an operator or the agent
	// says so), "standby" (the other tier takes the connections), or "ejected" (connections
	// of clients failed to reach it).
	State string `json:"state"`
	// StateSeconds is how long State has held.
	StateSeconds float64 `json:"state_seconds"`
	// Reason says in words why the programmed weight is what it is.
	Reason string `json:"reason"`
	// Backup says that it is one of the backup servers; Ramping that its weight is on
	// its way, by a slow start or an operator's word; HealthIgnored that it takes
	// connections although it failed.
	Backup        bool `json:"backup"`
	Ramping       bool `json:"ramping"`
	HealthIgnored bool `json:"health_ignored"`
	// Admin is what an operator said of it.
	Admin  Admin   `json:"admin"`
	Checks []Check `json:"checks"`
	Stats  Stats   `json:"stats"`
}

// Check is one check of a real server with its last result.
type Check struct {
	// Probe is its content, such as "tcp 10.0.0.2:80".
	Probe string `json:"probe"`
	State string `json:"state"`
	// Detail is the last result in words, the error of a failed one.
	Detail string `json:"detail,omitempty"`
	// Warning is what the check warns of, while it passes, too: "the certificate
	// expires in 3 days: …".
	Warning        string  `json:"warning,omitempty"`
	LatencySeconds float64 `json:"latency_seconds"`
	// AgeSeconds is the age of the last result; -1 before the first.
	AgeSeconds float64 `json:"age_seconds"`
	Checks     uint64  `json:"checks"`
	Failures   uint64  `json:"failures"`
}

// Stats are counters, and rates a second.
type Stats struct {
	Connections    uint64 `json:"connections"`
	PacketsIn      uint64 `json:"packets_in"`
	PacketsOut     uint64 `json:"packets_out"`
	BytesIn        uint64 `json:"bytes_in"`
	BytesOut       uint64 `json:"bytes_out"`
	ConnectionRate uint64 `json:"connection_rate"`
	PacketRateIn   uint64 `json:"packet_rate_in"`
	PacketRateOut  uint64 `json:"packet_rate_out"`
	ByteRateIn     uint64 `json:"byte_rate_in"`
	ByteRateOut    uint64 `json:"byte_rate_out"`
}

// File is the body of POST /v1/check and POST /v1/diff: the bytes of a
// configuration with the name to print in errors.
type File struct {
	Name    string `json:"name"`
	Content string `json:"content"`
}

// CheckReport is the answer of POST /v1/check.
type CheckReport struct {
	// Errors make the file unusable: "lbd.yaml:3:5: unknown key".
	Errors []string `json:"errors"`
	// HostErrors are what this host cannot do of it.
	HostErrors []string `json:"host_errors"`
	Warnings   []string `json:"warnings"`
}

// Plan is the answer of POST /v1/diff: what a load of the file would write.
type Plan struct {
	Errors   []string `json:"errors"`
	Warnings []string `json:"warnings"`
	Steps    []Step   `json:"steps"`
}

// Step is one operation of a Plan.
type Step struct {
	// Op is "add service", "update destination", "drain destination", … A step
	// of a Plan may need no write now, for a server whose weight is 0 already.
	Op      string `json:"op"`
	Service string `json:"service"`
	// RealServer is empty for an operation on a service.
	RealServer string `json:"real_server,omitempty"`
	// Change says what changes: "weight 3 -> 5".
	Change string `json:"change,omitempty"`
	// ActiveConnections are the live connections that the step cuts or drains.
	ActiveConnections uint32 `json:"active_connections"`
}

// ReloadResult is the answer of POST /v1/reload.
type ReloadResult struct {
	// Reloaded is false when the file was refused; nothing changed then.
	Reloaded bool `json:"reloaded"`
	// Errors say why the file was refused or, where it was not, what the table
	// did not take yet: lbd tries that again.
	Errors   []string `json:"errors"`
	Warnings []string `json:"warnings"`
	// Ops is the number of operations that the reload wrote.
	Ops int `json:"ops"`
}

// ReconcileResult is the answer of POST /v1/reconcile: what the pass found and
// wrote.
type ReconcileResult struct {
	// Steps are the operations written; none when the table was right.
	Steps []Step `json:"steps"`
	// Errors are the operations that the table refused.
	Errors []string `json:"errors"`
}

// Error is the body of every answer that is not 200.
type Error struct {
	Error string `json:"error"`
}
