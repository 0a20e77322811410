package probe

import (
	"encoding/binary"
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

func TestFamilyAnswer(t *testing.T) {
	message := func(kind uint16, payload ...byte) []byte {
		b := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(payload)))
		b = binary.NativeEndian.AppendUint16(b, kind)
		return append(append(b, make([]byte, 10)...), payload...)
	}
	if err := familyAnswer(message(unix.GENL_ID_CTRL)); err != nil {
		t.Errorf("a family gave %v", err)
	}
	errno := binary.NativeEndian.AppendUint32(nil, uint32(0xffffffff-unix.ENOENT+1))
	if err := familyAnswer(message(unix.NLMSG_ERROR, errno...)); !errors.Is(err, unix.ENOENT) {
		t.Errorf("an error gave %v, want %v", err, unix.ENOENT)
	}
	for _, b := range [][]byte{nil, {1}, message(unix.NLMSG_ERROR), message(unix.NLMSG_ERROR, 1), message(99)} {
		if err := familyAnswer(b); err == nil {
			t.Errorf("familyAnswer(%x) gave no error", b)
		}
	}
}
