package conntrack

// answers gathers the answers to one request, up to the last: an NLMSG_DONE or
// an NLMSG_ERROR.
type answers struct {
	seq  uint32
	each func(*message) error // May be nil.

	// interrupted says that one had NLM_F_DUMP_INTR.
	interrupted bool
	// failed is the kernel's error, or each's first one: what comes behind that is
	// read to the end all the same.
	failed error

	m message // Here, since each makes it escape.
}

// take reads a datagram and says whether it had the last answer. Behind an error
// the stream is lost.
func (a *answers) take(b []byte) (last bool, err error) {
	for len(b) > 0 {
		if a.m, b, err = nextMessage(b); err != nil {
			return false, err
		}
		m := &a.m
		if m.Seq != a.seq || m.Type == nlmsgNoop {
			continue
		}
		a.interrupted = a.interrupted || m.Flags&flagDumpIntr != 0
		switch m.Type {
		case nlmsgDone, nlmsgError:
			if err := m.errno(); err != nil {
				a.failed = err
			}
			return true, nil
		}
		if a.failed == nil && a.each != nil {
			a.failed = a.each(m)
		}
	}
	return false, nil
}
