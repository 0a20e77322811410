package ruleset

import (
	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"

	"github.com/lbd-project/lbd/ipvs"
)

// Names of sets and maps. A service is in one of the three sets, and in the map
// of the same shape where it has a chain.
const (
	setServices      = "services"      // address . protocol . port
	setAnyPort       = "services_any"  // address . protocol
	setMarks         = "services_mark" // mark . protocol
	mapServices      = "chains"        // … : goto service-ID
	mapAnyPort       = "chains_any"    //
	mapMarks         = "chains_mark"   //
	mapServers       = "servers"       // mark : address . port
	mapAnyPortServer = "servers_any"   // mark : address
	setSources       = "answers"       // address . port of real servers
	setAnyPortSource = "answers_any"   // address
	setDead          = "dead"          // mark
	setSignals       = "signals"       // mark
	setClosing       = "closing"       // mark, with INACTIVE for ends without events; each element counts connections that close
	setTraffic       = "traffic"       // mark . direction; each element counts packets and bytes
	mapShares        = "shares"        // interval : mark
	mapTemplates     = "templates"     // service . client : mark, with timeouts
	maxTemplates     = 1 << 20         // elements of mapTemplates
)

// element is one element of a set or map.
type element struct {
	key, value string
	// chain is where a verdict map goes to.
	chain string
	// end marks the first key after an interval.
	end bool
}

// table is one of the two tables.
type table struct {
	version
	is   ipvs.Family
	opts *Options
	able *Abilities
	nft  *nftables.Table
	sets map[string]*nftables.Set

	// known is set while the kernel's table is as we left it; the rest describes
	// it then.
	known bool
	shape shape
	// persistent is how many services keep templates.
	persistent int
	// wanted counts how often each element of a shared set is wanted.
	wanted map[string]map[element]int
	// answers are the elements of mapAnswers.
	answers map[string]string
	// signals are the elements of setSignals.
	signals map[uint32]bool
	// passive are the marks in setPassive.
	passive map[uint32]bool
	// uses counts the services that use a chain.
	uses map[string]int
	// regions are the parts of mapShares that services have, by their id.
	regions map[uint32]uint32
	// room is how many elements the counted sets have room for.
	room uint32
	// free are regions that were given back; used is how many there ever were.
	free []uint32
	used uint32
}

// reset forgets what the kernel's table holds.
func (t *table) reset() {
	t.known, t.shape, t.persistent = false, shape{}, 0
	t.wanted = map[string]map[element]int{setSources: {}, setAnyPortSource: {}}
	t.uses, t.answers, t.signals, t.passive = map[string]int{}, map[string]string{}, nil, nil
	t.regions, t.free, t.used, t.room = map[uint32]uint32{}, nil, 0, 0
}

// minRoom is what the counted sets have room for at least.
const minRoom = 64

// counted says whether a set counts packets of known flows. Such sets are of a
// fixed size: the kernel finds an element of these in half the time (nft_hash of
// net/netfilter/nft_set_hash.c), and each packet asks for one.
func counted(set string) bool { return set == setClosing || set == setTraffic }

// makeRoom sizes the counted sets for as many real servers as there are, which
// have two elements in each at most, and as many again.
func (t *table) makeRoom(servers int) {
	t.room = minRoom
	for t.room < 4*uint32(servers) {
		t.room *= 2
	}
	for name, s := range t.sets {
		if counted(name) {
			s.Size = t.room
		}
	}
}

// outgrown says whether real servers do not fit any more.
func (t *table) outgrown(servers int) bool { return t.known && 2*uint32(servers) > t.room }

// shape is what the rules of shared chains depend on.
type shape struct {
	persistent, dead, allEvents, stateless, signals, tunnels bool
	// passive says that there are services with Passive, tries that there are or
	// were.
	passive, tries bool
	timeouts       ipvs.Timeouts
}

func newTable(o *Options, a *Abilities, f ipvs.Family) *table {
	t := &table{version: versionOf(f), is: f, opts: o, able: a}
	t.nft = &nftables.Table{Name: o.Name, Family: t.family}
	mark, proto, port := nftables.TypeMark, nftables.TypeInetProto, nftables.TypeInetService
	t.sets = make(map[string]*nftables.Set)
	t.addSet(setServices, nil, t.addr, proto, port)
	t.addSet(setAnyPort, nil, t.addr, proto)
	t.addSet(setMarks, nil, mark, proto)
	t.addSet(mapServices, concat(nftables.TypeVerdict), t.addr, proto, port)
	t.addSet(mapAnyPort, concat(nftables.TypeVerdict), t.addr, proto)
	t.addSet(mapMarks, concat(nftables.TypeVerdict), mark, proto)
	t.addSet(mapServers, concat(t.addr, port), mark)
	t.addSet(mapAnyPortServer, concat(t.addr), mark)
	t.addSet(setSources, nil, t.addr, port)
	t.addSet(setAnyPortSource, nil, t.addr)
	t.addSet(setDead, nil, mark)
	t.addSet(setSignals, nil, mark)
	t.addSet(setClosing, nil, mark)
	t.sets[setClosing].Counter = true
	t.addSet(setTraffic, nil, mark, nftables.TypeCTDir)
	t.sets[setTraffic].Counter = true
	t.addSet(mapShares, concat(mark), nftables.TypeInteger)
	t.sets[mapShares].Interval = true
	t.addSet(mapTemplates, concat(mark), mark, t.addr)
	templates := t.sets[mapTemplates]
	templates.HasTimeout, templates.Dynamic, templates.Size = true, true, maxTemplates
	t.addStatelessSets()
	t.addPassiveSets()
	return t
}

// addSet defines a set, or a map where data is not nil.
func (t *table) addSet(name string, data *nftables.SetDatatype, key ...nftables.SetDatatype) {
	s := &nftables.Set{Table: t.nft, ID: uint32(len(t.sets) + 1), Name: name, KeyType: *concat(key...)}
	if data != nil {
		s.IsMap, s.DataType = true, *data
	}
	if key[0] == nftables.TypeMark {
		// How the nft command prints it.
		s.KeyByteOrder = binaryutil.NativeEndian
	}
	t.sets[name] = s
}

func concat(types ...nftables.SetDatatype) *nftables.SetDatatype {
	if len(types) == 1 {
		return &types[0]
	}
	d := nftables.MustConcatSetType(types...)
	return &d
}

// static says whether the elements of a set are all lbd's to write.
func static(name string) bool { return name != mapTemplates && name != mapFlows }
