package api

import "slices"

// Explanation is the answer of GET /v1/services/{name}/explain: how the real
// servers of a service stand, and who would get the next connection.
type Explanation struct {
	Service   string `json:"service"`
	Key       string `json:"key"`
	Scheduler string `json:"scheduler"`
	// Compares says in words what the scheduler compares; empty if it does not.
	Compares string `json:"compares,omitempty"`
	// Next is the real server that the next new client would get; empty where
	// there is none, or it is not certain. Why says why.
	Next string `json:"next,omitempty"`
	Why  string `json:"why"`
	// RealServers are in the order of the engine, in which the first of equals
	// wins, and then those that it does not hold.
	RealServers []Standing `json:"real_servers"`
	// Warnings are what is known to make this service behave other than expected.
	Warnings []string `json:"warnings"`
}

// Standing is a real server of an Explanation.
type Standing struct {
	Address string `json:"address"`
	// ConfiguredWeight is the file's, ProgrammedWeight the engine's; Reason says
	// how the one became the other.
	ConfiguredWeight uint32 `json:"configured_weight"`
	ProgrammedWeight uint32 `json:"programmed_weight"`
	State            string `json:"state"`
	Reason           string `json:"reason,omitempty"`
	Present          bool   `json:"present"`
	Active           uint32 `json:"active"`
	Inactive         uint32 `json:"inactive"`
	// Score is what the scheduler compares: the least wins. It is empty for a real
	// server that gets no new connection, and where nothing is compared.
	Score string `json:"score,omitempty"`
	// Overloaded says that an upper threshold keeps new connections away.
	Overloaded bool `json:"overloaded,omitempty"`
	// OnFailure is what a failure does: "quiesce" is weight 0, "remove" takes it out
	// of the table; OnFailureReason says why. Both are empty for a real server that
	// left the configuration.
	OnFailure       string `json:"on_failure,omitempty"`
	OnFailureReason string `json:"on_failure_reason,omitempty"`
	// Chain is how the configured weight became the one that should be
	// programmed: its first and last steps are those two.
	Chain []WeightStep `json:"chain"`
}

// WeightStep is a step of the weight chain of a real server.
type WeightStep struct {
	// Step is "configured", "admin" (an operator's word), "dynamic" (what the
	// server's agent or a check says of its weight), "slow start", "passive" (what
	// connections of clients say), "gate" (failed, disabled or standing by) or
	// "programmed".
	Step string `json:"step"`
	// Weight is the weight after the step, Reason what made it.
	Weight uint32 `json:"weight"`
	Reason string `json:"reason,omitempty"`
}

// Diagnosis is the answer of GET /v1/doctor.
type Diagnosis struct {
	Engine        string    `json:"engine"`
	EngineReason  string    `json:"engine_reason"`
	EngineVersion string    `json:"engine_version"`
	Findings      []Finding `json:"findings"`
}

// Finding is one thing that was looked at.
type Finding struct {
	// Level is "ok", "note" for what is good to know, or "warning" for what keeps
	// something from working.
	Level string `json:"level"`
	// Topic is a word or two: "conntrack".
	Topic string `json:"topic"`
	Text  string `json:"text"`
}

// The levels of a Finding.
const (
	LevelOK      = "ok"
	LevelNote    = "note"
	LevelWarning = "warning"
)

func (e Explanation) fill() Explanation {
	e.RealServers = list(slices.Clone(e.RealServers))
	for i := range e.RealServers {
		e.RealServers[i].Chain = list(e.RealServers[i].Chain)
	}
	e.Warnings = list(e.Warnings)
	return e
}

func (d Diagnosis) fill() Diagnosis {
	d.Findings = list(d.Findings)
	return d
}
