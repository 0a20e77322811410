package ruleset

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

type closedCount struct {
	Mark  uint32
	N     uint64
	Quiet bool
}

// nested is an attribute of attributes.
func nested(kind uint16, parts ...[]byte) []byte {
	return appendAttribute(nil, kind|unix.NLA_F_NESTED, slices.Concat(parts...))
}

// countedElement is an element as the kernel sends it.
func countedElement(v closedCount) []byte {
	key := v.Mark
	if v.Quiet {
		key |= newCounts().opts.Inactive()
	}
	return nested(unix.NFTA_LIST_ELEM,
		nested(unix.NFTA_SET_ELEM_KEY, appendAttribute(nil, unix.NFTA_DATA_VALUE, u32(key))),
		counter(v.N))
}

// counter is what counted n packets of 40 bytes.
func counter(n uint64) []byte {
	return nested(unix.NFTA_SET_ELEM_EXPR,
		appendAttribute(nil, unix.NFTA_EXPR_NAME, []byte("counter\x00")),
		nested(unix.NFTA_EXPR_DATA,
			appendAttribute(nil, unix.NFTA_COUNTER_BYTES, binary.BigEndian.AppendUint64(nil, 40*n)),
			appendAttribute(nil, unix.NFTA_COUNTER_PACKETS, binary.BigEndian.AppendUint64(nil, n))))
}

func message(kind uint16, seq uint32, body []byte) []byte {
	b := binary.NativeEndian.AppendUint32(nil, uint32(headerLen+len(body)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, 0, 0)
	b = binary.NativeEndian.AppendUint32(b, seq)
	return padded(append(append(b, 0, 0, 0, 0), body...))
}

const newElements = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWSETELEM

func countedMessage(seq uint32, list ...closedCount) []byte {
	var elements []byte
	for _, v := range list {
		elements = append(elements, countedElement(v)...)
	}
	return message(newElements, seq, slices.Concat(make([]byte, genmsgLen),
		appendAttribute(nil, unix.NFTA_SET_ELEM_LIST_TABLE, []byte("lbd\x00")),
		nested(unix.NFTA_SET_ELEM_LIST_ELEMENTS, elements)))
}

func newCounts() *counters {
	o, err := Options{}.withDefaults()
	if err != nil {
		panic(err)
	}
	return &counters{opts: &o, seq: 7}
}

// closings reads messages about setClosing.
func (c *counters) closings(b []byte, visit func(closedCount)) (done bool, err error) {
	return c.messages(b, c.opts.closings(func(m uint32, n uint64, quiet bool) { visit(closedCount{m, n, quiet}) }))
}

// TestClosedMessages reads answers of all kinds.
func TestClosedMessages(t *testing.T) {
	done := message(unix.NLMSG_DONE, 7, make([]byte, 4))
	failed := func(e unix.Errno) []byte { return message(unix.NLMSG_ERROR, 7, u32(uint32(-int32(e)))) }
	one, two := closedCount{mark1, 5, false}, closedCount{mark2, 1 << 40, true}
	full := countedMessage(7, one, two)
	for _, test := range []struct {
		name string
		b    []byte
		want []closedCount
		done bool
		err  error
	}{
		{"nothing", nil, nil, false, nil},
		{"two", full, []closedCount{one, two}, false, nil},
		{"two messages", slices.Concat(countedMessage(7, one), countedMessage(7, two), done), []closedCount{one, two}, true, nil},
		{"of an earlier request", slices.Concat(countedMessage(6, one), message(unix.NLMSG_DONE, 6, nil)), nil, false, nil},
		{"no set", failed(unix.ENOENT), nil, true, nil},
		{"busy", failed(unix.EBUSY), nil, false, unix.EBUSY},
		{"not a real server's", countedMessage(7, closedCount{0, 1, false}, closedCount{DefaultMask, 1, true}, closedCount{1, 1, false}, one), []closedCount{one}, false, nil},
		{"without a counter", message(newElements, 7, slices.Concat(make([]byte, genmsgLen), nested(unix.NFTA_SET_ELEM_LIST_ELEMENTS,
			nested(unix.NFTA_LIST_ELEM, nested(unix.NFTA_SET_ELEM_KEY, appendAttribute(nil, unix.NFTA_DATA_VALUE, u32(mark1))))))), nil, false, nil},
		{"cut header", full[:10], nil, false, errTruncated},
		{"cut message", full[:len(full)-4], nil, false, errTruncated},
		{"short error", message(unix.NLMSG_ERROR, 7, nil), nil, false, errTruncated},
		{"no nfgenmsg", message(newElements, 7, []byte{1}), nil, false, errTruncated},
		{"attribute of no length", message(newElements, 7, make([]byte, genmsgLen+4)), nil, false, errTruncated},
		{"attribute past the end", message(newElements, 7, append(make([]byte, genmsgLen), 99, 0, 3, 0)), nil, false, errTruncated},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []closedCount
			done, err := newCounts().closings(test.b, func(v closedCount) { got = append(got, v) })
			if done != test.done || !errors.Is(err, test.err) {
				t.Errorf("want %v, %v; got %v, %v", test.done, test.err, done, err)
			}
			if !cmp.Equal(test.want, got) {
				t.Errorf("(-want +got)\n%s", cmp.Diff(test.want, got))
			}
		})
	}
}

// FuzzClosed reads anything, and what it found again.
func FuzzClosed(f *testing.F) {
	f.Add(countedMessage(7, closedCount{mark1, 5, false}, closedCount{mark2, 6, true}))
	f.Add(slices.Concat(countedMessage(7, closedCount{mark1, 5, false}), message(unix.NLMSG_DONE, 7, make([]byte, 4))))
	f.Add(message(unix.NLMSG_ERROR, 7, u32(uint32(0x100000000-uint64(unix.ENOENT)))))
	f.Fuzz(func(t *testing.T, b []byte) {
		c := newCounts()
		var found, again []closedCount
		c.closings(b, func(v closedCount) { found = append(found, v) })
		if len(found) > len(b)/32 {
			t.Fatalf("%d elements in %d bytes", len(found), len(b))
		}
		// What fits into one attribute.
		found = found[:min(len(found), 600)]
		_, err := c.closings(countedMessage(7, found...), func(v closedCount) { again = append(again, v) })
		if err != nil || !cmp.Equal(found, again) {
			t.Errorf("%v (-want +got)\n%s", err, cmp.Diff(found, again))
		}
	})
}
