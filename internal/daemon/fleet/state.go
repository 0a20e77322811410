package fleet

// State is the state of a real server, in the words of the control API.
type State string

// The states. A server that is down because it was down before a restart, and
// has no result since, is Down; every other server without a result is Pending
// and counts as up.
const (
	Up        State = "up"
	Down      State = "down"
	Pending   State = "pending"
	Unchecked State = "unchecked"
	// Draining servers left the configuration.
	Draining State = "draining"
	// Drained servers have weight 0, Disabled ones are not in the table, because
	// an operator or their agent says so.
	Drained  State = "drained"
	Disabled State = "disabled"
	// Standby servers are well, and those of the other tier take the connections:
	// the backup servers while the quorum is held, the others while they replace
	// them.
	Standby State = "standby"
	// Ejected servers are well by their checks, but connections of clients failed to
	// reach them.
	Ejected State = "ejected"
)

// Gate is the last word of the weight chain.
type Gate uint8

// The gates. "configured 0" and "drained 0" are GateOpen with a weight that was 0
// before; the reasons for a closed gate never share a value.
const (
	// GateOpen lets the weight through.
	GateOpen Gate = iota
	// GateFailed is 0: a check failed, or the server's agent says that it is down.
	GateFailed
	// GateDrained is 0: the server left the configuration.
	GateDrained
	// GateDisabled is 0: an operator or the agent took the server out.
	GateDisabled
	// GateStandby is 0: the other tier takes the connections.
	GateStandby
)

func (g Gate) apply(weight uint32) uint32 {
	if g != GateOpen {
		return 0
	}
	return weight
}

// StepName names a step of the weight chain.
type StepName uint8

// The steps in their order. A chain has those that have something to say.
const (
	StepConfigured StepName = iota
	StepAdmin
	StepDynamic
	StepSlowStart
	StepPassive
	StepGate
	StepProgrammed
)

// String returns the name for people: "slow start".
func (n StepName) String() string {
	return [...]string{"configured", "admin", "dynamic", "slow start", "passive", "gate", "programmed"}[n]
}

// Step is a step of the weight chain.
type Step struct {
	Name StepName
	// Weight is the weight after the step.
	Weight uint32
	// Reason says in words what made it; empty where that is plain.
	Reason string
}

// QuorumState is whether a service has the weight that its quorum wants.
type QuorumState uint8

// The states of a quorum.
const (
	// QuorumNone is of a service for which nothing depends on the quorum, and
	// after a start until the checks have decided, which counts as held.
	QuorumNone QuorumState = iota
	QuorumHeld
	QuorumLost
)

// String returns "none", "held" or "lost".
func (q QuorumState) String() string { return [...]string{"none", "held", "lost"}[q] }
