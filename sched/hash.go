package sched

// The table size of sh and dh: CONFIG_IP_VS_SH_TAB_BITS and
// CONFIG_IP_VS_DH_TAB_BITS of ip_vs_sh.c and ip_vs_dh.c, by default 8.
const (
	hashBits    = 8
	hashBuckets = 1 << hashBits
)

// buckets is sh or dh: a table from hashes to servers.
type buckets struct {
	// weighted makes it sh: weights count, and the key is the client. dh's key is
	// the virtual address.
	weighted bool
	servers  [hashBuckets]*Server
}

// fill deals the buckets out in list order: as many in a row as the weight says,
// one where that is 0.
func (b *buckets) fill(list []*Server) {
	clear(b.servers[:])
	if len(list) == 0 {
		return
	}
	var i int
	var given uint32
	for n := range b.servers {
		b.servers[n] = list[i]
		if given++; given >= b.share(list[i]) {
			i, given = (i+1)%len(list), 0
		}
	}
}

func (b *buckets) share(s *Server) uint32 {
	if b.weighted {
		return s.weight
	}
	return 1
}

// get returns the server of the packet's bucket. With the fallback of sh the
// search goes on from bucket to bucket where that server is not available.
func (b *buckets) get(p *Packet, o *Options) *Server {
	if !b.weighted {
		return onlyAvailable(b.servers[hash32(fold(p.Dst), hashBits)])
	}
	first := hash32(clientKey(p, o.Port), hashBits)
	s := onlyAvailable(b.servers[first])
	if s != nil || !o.Fallback {
		return s
	}
	// The kernel adds the client's bucket to the offset a second time.
	for i := range uint32(hashBuckets) {
		if s := b.servers[(2*first+i)%hashBuckets]; s.available() {
			return s
		}
	}
	return nil
}

// onlyAvailable returns s if it may get new connections, else nil.
func onlyAvailable(s *Server) *Server {
	if s != nil && s.available() {
		return s
	}
	return nil
}

// clientKey is what sh and mh hash: the client's address, and the port with the
// option. Adding them up is what the kernel does.
func clientKey(p *Packet, port bool) uint32 {
	return fold(p.Src) + uint32(clientPort(p, port))
}

// clientPort is the client's port where it counts: with the option, and for
// protocols that have ports.
func clientPort(p *Packet, port bool) uint16 {
	if !port {
		return 0
	}
	switch p.Protocol {
	case protoTCP, protoUDP, protoSCTP:
		return p.SrcPort
	}
	return 0
}

// Protocols whose ports sh and mh read, by IANA's numbers.
const (
	protoTCP  = 6
	protoUDP  = 17
	protoSCTP = 132
)
