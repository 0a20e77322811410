package conntrack

// Stats are the kernel's statistics of a conntrack table, summed over the
// processors. They wrap at 32 bits on each of them.
type Stats struct {
	// Entries is how many entries there are, Max how many there may be
	// (net.netfilter.nf_conntrack_max); a Max of zero is no limit.
	Entries, Max uint32
	// Found counts look-ups that found an entry where one of a new flow should go,
	// as address translation does to find a free port.
	Found uint64
	// Invalid counts packets that no entry fits.
	Invalid uint64
	// InsertFailed counts entries that could not go into the table, since one with
	// the same tuple was faster. Their packets were dropped.
	InsertFailed uint64
	// Drop counts packets that were dropped for lack of an entry, the table being
	// full; EarlyDrop counts entries given up to make room.
	Drop, EarlyDrop uint64
	// Error counts packets that failed a check of their protocol.
	Error uint64
	// SearchRestart counts look-ups that began anew, the table being resized.
	SearchRestart uint64
	// ClashResolve counts entries that lost the race of InsertFailed without a
	// loss; zero before Linux 5.9.
	ClashResolve uint64
	// ChainTooLong counts entries refused because too many share their hash; zero
	// before Linux 5.15.
	ChainTooLong uint64
}

func cpuStatsRequest(seq uint32) []byte {
	return finish(request(msgGetStatsCPU, flagDump, seq, familyUnspec, 0))
}

// globalStatsRequest wants an acknowledgement behind the one answer, so that it
// ends as every exchange does.
func globalStatsRequest(seq uint32) []byte {
	return finish(request(msgGetStats, flagAck, seq, familyUnspec, 0))
}

// addCPU adds the statistics of a processor.
func (st *Stats) addCPU(m *message) error {
	if m.Type != msgGetStatsCPU {
		return malformed("type %#x among statistics", m.Type)
	}
	return m.each(func(typ uint16, v []byte) error {
		var n uint32
		to := st.field(typ)
		if to == nil {
			return nil
		}
		err := get32(v, &n)
		*to += uint64(n)
		return err
	})
}

func (st *Stats) field(typ uint16) *uint64 {
	switch typ {
	case attrStatsFound:
		return &st.Found
	case attrStatsInvalid:
		return &st.Invalid
	case attrStatsInsertFailed:
		return &st.InsertFailed
	case attrStatsDrop:
		return &st.Drop
	case attrStatsEarlyDrop:
		return &st.EarlyDrop
	case attrStatsError:
		return &st.Error
	case attrStatsSearchRestart:
		return &st.SearchRestart
	case attrStatsClashResolve:
		return &st.ClashResolve
	case attrStatsChainTooLong:
		return &st.ChainTooLong
	}
	return nil
}

// setGlobal takes the statistics of the table.
func (st *Stats) setGlobal(m *message) error {
	if m.Type != msgGetStats {
		return malformed("type %#x where statistics should be", m.Type)
	}
	return m.each(func(typ uint16, v []byte) error {
		switch typ {
		case attrGlobalEntries:
			return get32(v, &st.Entries)
		case attrGlobalMaxEntries:
			return get32(v, &st.Max)
		}
		return nil
	})
}
