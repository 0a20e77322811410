package conntrack

import (
	"encoding/binary"
	"errors"
	"syscall"
	"testing"
)

// sequenced sets the sequence number and adds flags.
func sequenced(b []byte, seq uint32, flags uint16) []byte {
	b = append([]byte(nil), b...)
	binary.NativeEndian.PutUint32(b[8:], seq)
	binary.NativeEndian.PutUint16(b[6:], binary.NativeEndian.Uint16(b[6:])|flags)
	return b
}

func TestAnswers(t *testing.T) {
	full := fullEvent()
	full.Kind = New
	const seq = 7
	entry := sequenced(build(&full), seq, 0)
	marked := sequenced(entry, seq, flagDumpIntr)
	late := sequenced(entry, seq-1, flagDumpIntr)
	done := sequenced(control(nlmsgDone, 0), seq, 0)
	fail := sequenced(control(nlmsgError, -int32(syscall.EPERM)), seq, 0)
	bad := errors.New("bad entry")
	cat := func(parts ...[]byte) (out []byte) {
		for _, p := range parts {
			out = append(out, p...)
		}
		return out
	}
	for _, test := range []struct {
		name        string
		datagrams   [][]byte
		each        error // What each returns.
		want        int   // Calls of each.
		last        bool
		interrupted bool
		failed, err error
	}{
		{"dump", [][]byte{cat(entry, entry), cat(entry, done)}, nil, 3, true, false, nil, nil},
		{"dump that goes on", [][]byte{cat(entry, entry)}, nil, 2, false, false, nil, nil},
		{"interrupted", [][]byte{cat(entry, marked), done}, nil, 2, true, true, nil, nil},
		{"interrupted at the end", [][]byte{entry, sequenced(done, seq, flagDumpIntr)}, nil, 1, true, true, nil, nil},
		{"answers to an earlier request", [][]byte{cat(late, sequenced(done, seq-1, 0), entry), done}, nil, 1, true, false, nil, nil},
		{"refused", [][]byte{fail}, nil, 0, true, false, syscall.EPERM, nil},
		{"error in the stream", [][]byte{cat(entry, fail, entry)}, nil, 1, true, false, syscall.EPERM, nil},
		{"end with an error", [][]byte{cat(entry, sequenced(control(nlmsgDone, -int32(syscall.EINTR)), seq, 0))}, nil, 1, true, false, syscall.EINTR, nil},
		{"entry that is bad", [][]byte{cat(entry, entry), cat(entry, done)}, bad, 1, true, false, bad, nil},
		{"cut", [][]byte{cat(entry, entry[:50])}, nil, 1, false, false, nil, errMalformed},
		{"noop between", [][]byte{cat(entry, sequenced(control(nlmsgNoop, 0), seq, 0), done)}, nil, 1, true, false, nil, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			var n int
			a := answers{seq: seq, each: func(*message) error { n++; return test.each }}
			var last bool
			var err error
			for _, b := range test.datagrams {
				if last, err = a.take(b); err != nil {
					break
				}
			}
			if !errors.Is(err, test.err) || !errors.Is(a.failed, test.failed) {
				t.Errorf("want %v and %v, got %v and %v", test.err, test.failed, err, a.failed)
			}
			if n != test.want || last != test.last || a.interrupted != test.interrupted {
				t.Errorf("want %d entries, last %v, interrupted %v; got %d, %v, %v",
					test.want, test.last, test.interrupted, n, last, a.interrupted)
			}
		})
	}
}
