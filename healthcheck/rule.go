package healthcheck

// RuleKind is how a Rule comes to its state.
type RuleKind uint8

// The kinds of a Rule.
const (
	// RuleProbe has the state of one probe.
	RuleProbe RuleKind = iota
	// RuleAll needs all of its parts.
	RuleAll
	// RuleAny needs one of its parts.
	RuleAny
)

// Rule combines the states of several probes into one. The probes are in a list
// of the caller's.
type Rule struct {
	Kind RuleKind
	// Probe is the index of the probe of a RuleProbe.
	Probe int
	// Of are the parts of a RuleAll or RuleAny.
	Of []Rule
}

// Eval returns the state of the rule, given that of each probe.
//
// RuleAll is Down if any part is Down, else Pending if any is Pending, else Up;
// without parts it is Up. RuleAny is Up if any part is Up, else Pending if any is
// Pending, else Down; without parts it is Down.
func (r Rule) Eval(state func(probe int) State) State {
	// decisive is the state that one part imposes.
	var decisive, otherwise State
	switch r.Kind {
	case RuleAll:
		decisive, otherwise = Down, Up
	case RuleAny:
		decisive, otherwise = Up, Down
	default:
		return state(r.Probe)
	}
	for _, part := range r.Of {
		switch part.Eval(state) {
		case decisive:
			return decisive
		case Pending:
			otherwise = Pending
		}
	}
	return otherwise
}
