package sched

// How another file adds a scheduler: it declares a type that implements
// scheduler (embedding unhooked for the hooks that it does not need) and a
// function that returns its registrations, and that function is named in
// families below. There is no init function and no registration at run time.
//
//	func hashFamily() []registration {
//		return []registration{{
//			Info: Info{Name: "sh", Kernel: true, Summary: "source hashing", ReadsWeight: true},
//			make: func(t *Table) scheduler { return newSourceHash(t) },
//		}}
//	}
//
// make is called by New with an empty table and by Reset with a full one, after
// the table has its options (t.opt) and with slot, current, picked and group of
// every server at 0: it takes in the servers that t.Servers yields. Later ones come
// through added. Options that the Info and the flags beside it describe have
// been checked by then.

// scheduler chooses a server. It reads the servers' fields and writes only slot,
// current, picked and group, which are its own.
type scheduler interface {
	// pick chooses a server for p and moves on; nil: none. The table counts the
	// connection afterwards.
	pick(p *Packet) *Server
	// peek returns what pick would and changes nothing.
	peek(p *Packet) *Server
	// added is called after s was put at the head of the list.
	added(s *Server)
	// removed is called after s was unlinked; its next and prev still point
	// into the list.
	removed(s *Server)
	// updated is called after an edit of s, which may have changed its weight
	// and whether it is overloaded.
	updated(s *Server)
	// counted is called after a change in what is counted of s: connections,
	// overload, requests, response times.
	counted(s *Server)
}

// unhooked is embedded by schedulers that need not know.
type unhooked struct{}

func (unhooked) added(*Server)   {}
func (unhooked) removed(*Server) {}
func (unhooked) updated(*Server) {}
func (unhooked) counted(*Server) {}

// Info describes a scheduler.
type Info struct {
	// Name is what a configuration says, as the kernel's where there is one.
	Name string
	// Kernel reports that IPVS has it too.
	Kernel bool
	// Summary is half a line for people.
	Summary string
	// ReadsWeight reports that weights other than 0 make a difference.
	ReadsWeight bool
	// Ties reports that it accepts tie rules other than the kernel's.
	Ties bool
	// Signals reports that it needs requests or response times to be reported.
	Signals bool
}

// registration is a scheduler and how to make one.
type registration struct {
	Info
	// noTies is why it accepts no tie rules, where there is more to say than
	// that it knows no ties.
	noTies string
	// random and clock say that it needs Options.Rand and Options.Now.
	random, clock bool
	make          func(*Table) scheduler
}

// families lists what there is, in the order of Schedulers.
func families() [][]registration {
	return [][]registration{
		roundRobinFamily(),
		leastFamily(),
		hashFamily(),
		localityFamily(),
		randomFamily(),
	}
}

func lookup(name string) (registration, bool) {
	for _, f := range families() {
		for _, r := range f {
			if r.Name == name {
				return r, true
			}
		}
	}
	return registration{}, false
}

// Schedulers describes every scheduler that New knows.
func Schedulers() []Info {
	var infos []Info
	for _, f := range families() {
		for _, r := range f {
			infos = append(infos, r.Info)
		}
	}
	return infos
}
