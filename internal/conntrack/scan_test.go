package conntrack

import (
	"encoding/binary"
	"errors"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// control is a message of netlink itself, with an error number.
func control(typ uint16, errno int32) []byte {
	b := make([]byte, nlmsgHeaderLen)
	binary.NativeEndian.PutUint16(b[4:], typ)
	return finish(binary.NativeEndian.AppendUint32(b, uint32(errno)))
}

func TestScan(t *testing.T) {
	full := fullEvent()
	one := build(&full)
	icmp := request(msgNew, 0, 0, familyIPv4, 0)
	tuple := appendNest(nil, attrTupleProto, func(b []byte) []byte { return appendAttr(b, attrProtoNum, 1) })
	icmp = finish(append(append(icmp, raw(attrTupleOrig, nil, tuple)...), raw(attrTupleReply, nil, tuple)...))
	cat := func(parts ...[]byte) (out []byte) {
		for _, p := range parts {
			out = append(out, p...)
		}
		return out
	}
	for _, test := range []struct {
		name    string
		in      []byte
		want    EventStats
		overrun bool
	}{
		{"empty", nil, EventStats{}, false},
		{"one", one, EventStats{Events: 1}, false},
		{"three", cat(one, icmp, one), EventStats{Events: 2, Skipped: 1}, false},
		{"padding missing at the end", appendAttr(one, 99, 1)[:len(one)], EventStats{Events: 1}, false},
		{"error between", cat(one, control(nlmsgError, -int32(syscall.EPERM)), one), EventStats{Events: 2, Malformed: 1}, false},
		{"done between", cat(one, control(nlmsgDone, 0), one), EventStats{Events: 2}, false},
		{"noop between", cat(one, control(nlmsgNoop, 0), one), EventStats{Events: 2}, false},
		{"overrun between", cat(one, control(nlmsgOverrun, 0), one), EventStats{Events: 2, Overruns: 1}, true},
		{"another subsystem", cat(finish(request(2<<8, 0, 0, 0, 0)), one), EventStats{Events: 1, Malformed: 1}, false},
		{"bad one between", cat(one, finish(request(msgNew, 0, 0, familyIPv4, 0)), one), EventStats{Events: 2, Malformed: 1}, false},
		{"cut", cat(one, one[:len(one)-1]), EventStats{Events: 1, Malformed: 1}, false},
		{"half a header", cat(one, one[:7]), EventStats{Events: 1, Malformed: 1}, false},
		{"length below the header", cat(one, []byte{15, 0, 0, 0}, one[4:]), EventStats{Events: 1, Malformed: 1}, false},
		{"length of 4 GiB", cat(one, []byte{255, 255, 255, 255}, one[4:]), EventStats{Events: 1, Malformed: 1}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			var s scanner
			var handed uint64
			s.scan(test.in, func(ev *Event) {
				handed++
				if diff := cmp.Diff(full, *ev, compareTuples); diff != "" {
					t.Errorf("(-want +got)\n%s", diff)
				}
			})
			if diff := cmp.Diff(test.want, s.stats); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if handed != test.want.Events || s.overrun != test.overrun {
				t.Errorf("want %d events, overrun %v; got %d, %v", test.want.Events, test.overrun, handed, s.overrun)
			}
		})
	}
}

func TestErrno(t *testing.T) {
	for _, test := range []struct {
		name string
		in   []byte
		want error
	}{
		{"acknowledgement", control(nlmsgError, 0), nil},
		{"error", control(nlmsgError, -int32(syscall.ENOENT)), syscall.ENOENT},
		{"end", control(nlmsgDone, 0), nil},
		{"end with an error", control(nlmsgDone, -int32(syscall.EINTR)), syscall.EINTR},
		{"end without a body", control(nlmsgDone, 0)[:nlmsgHeaderLen], nil},
		{"error without a body", control(nlmsgError, 0)[:nlmsgHeaderLen], errMalformed},
		{"positive", control(nlmsgError, 2), errMalformed},
		{"too large", control(nlmsgError, -5000), errMalformed},
	} {
		t.Run(test.name, func(t *testing.T) {
			m, _, err := nextMessage(finish(test.in))
			if err != nil {
				t.Fatal(err)
			}
			if got := m.errno(); !errors.Is(got, test.want) {
				t.Errorf("want %v, got %v", test.want, got)
			}
		})
	}
}
