package ruleset

import (
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/xt"
)

// xtQueue is the target NFQUEUE of xtables in its revision 3, struct
// xt_NFQ_info_v3 of include/uapi/linux/netfilter/xt_NFQUEUE.h, for kernels
// without the expression "queue". The nft command prints it as "queue", but such
// a listing does not load there.
func xtQueue(o *Options) expr.Any {
	const bypass, fanout = 1, 2 // NFQ_FLAG_BYPASS, NFQ_FLAG_CPU_FANOUT
	var flags uint16
	if o.FailOpen {
		flags |= bypass
	}
	if o.Fanout {
		flags |= fanout
	}
	var info []byte
	for _, v := range []uint16{o.Queue, o.Queues, flags, 0} {
		info = append(info, binaryutil.NativeEndian.PutUint16(v)...)
	}
	raw := xt.Unknown(info)
	return &expr.Target{Name: "NFQUEUE", Rev: 3, Info: &raw}
}
