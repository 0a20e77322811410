package tunnel

import (
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"
)

// Offsets in struct __sk_buff, and what the program answers: both of
// include/uapi/linux/bpf.h.
const (
	skbLen      = 0
	skbMark     = 8
	skbPriority = 32

	lwtDrop    = 2   // BPF_DROP
	lwtReroute = 128 // BPF_LWT_REROUTE
	encapIP    = 2   // BPF_LWT_ENCAP_IP
)

// Offsets in the outer header.
const (
	offProtocol   = 9  // IPv4
	offChecksum   = 10 // IPv4
	offNextHeader = 6  // IPv6
)

const maxEnds = 1 << 20

// load makes the map and the program that reads it. mask is the part of what is at
// an offset in struct __sk_buff that names a tunnel end.
func load(field int16, mask uint32) (*ebpf.Map, *ebpf.Program, error) {
	// Kernels before 5.11 count the memory against a limit.
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, nil, fmt.Errorf("lift the limit of locked memory: %w", err)
	}
	ends, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "lbd_tunnels", Type: ebpf.Hash, KeySize: 4, ValueSize: valueSize, MaxEntries: maxEnds,
		Flags: 1, // BPF_F_NO_PREALLOC
	})
	if err != nil {
		return nil, nil, fmt.Errorf("make BPF map: %w", err)
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "lbd_tunnel", Type: ebpf.LWTXmit, License: "GPL", Instructions: instructions(ends, field, mask),
	})
	if err != nil {
		ends.Close()
		return nil, nil, fmt.Errorf("load BPF program: %w", err)
	}
	return ends, program, nil
}

// instructions are, in C:
//
//	u32 key = skb->mark & MASK; // or skb->priority
//	struct end *e = bpf_map_lookup_elem(&ends, &key);
//	if (!e) return BPF_DROP;
//	u8 header[40] = e->header;
//	if (e->size == 20) header.tot_len = htons(skb->len + 20);
//	else header.payload_len = htons(skb->len);
//	if (bpf_lwt_push_encap(skb, BPF_LWT_ENCAP_IP, header, e->size)) return BPF_DROP;
//	if (e->four) {
//		u8 ipip = IPPROTO_IPIP;
//		if (e->size == 20) {
//			bpf_l3_csum_replace(skb, 10, hop limit and IPPROTO_IPV6, … IPPROTO_IPIP, 2);
//			bpf_skb_store_bytes(skb, 9, &ipip, 1, 0);
//		} else
//			bpf_skb_store_bytes(skb, 6, &ipip, 1, 0);
//	}
//	return BPF_LWT_REROUTE;
func instructions(ends *ebpf.Map, field int16, mask uint32) asm.Instructions {
	const key, stack = -4, -4 - 4 - headerSize // 8-byte aligned
	in := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R2, asm.R1, field, asm.Word),
		asm.And.Imm32(asm.R2, int32(mask)),
		asm.StoreMem(asm.RFP, key, asm.R2, asm.Word),
		asm.LoadMapPtr(asm.R1, ends.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, key),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "drop"),
	}
	for i := int16(0); i < headerSize; i += 8 {
		in = append(in,
			asm.LoadMem(asm.R1, asm.R0, i, asm.DWord),
			asm.StoreMem(asm.RFP, stack+i, asm.R1, asm.DWord))
	}
	return append(in,
		asm.LoadMem(asm.R7, asm.R0, offSize, asm.Word),
		asm.LoadMem(asm.R9, asm.R0, offFour, asm.Word),
		asm.LoadMem(asm.R8, asm.R6, skbLen, asm.Word),
		asm.JEq.Imm(asm.R7, overhead6, "six"),

		asm.Add.Imm(asm.R8, overhead4),
		asm.HostTo(asm.BE, asm.R8, asm.Half),
		asm.StoreMem(asm.RFP, stack+2, asm.R8, asm.Half),
		asm.Mov.Imm(asm.R4, overhead4),
		asm.Ja.Label("push"),

		asm.HostTo(asm.BE, asm.R8, asm.Half).WithSymbol("six"),
		asm.StoreMem(asm.RFP, stack+4, asm.R8, asm.Half),
		asm.Mov.Imm(asm.R4, overhead6),

		asm.Mov.Reg(asm.R1, asm.R6).WithSymbol("push"),
		asm.Mov.Imm(asm.R2, encapIP),
		asm.Mov.Reg(asm.R3, asm.RFP),
		asm.Add.Imm(asm.R3, stack),
		asm.FnLwtPushEncap.Call(),
		asm.JNE.Imm(asm.R0, 0, "drop"),
		asm.JEq.Imm(asm.R9, 0, "done"),

		asm.StoreImm(asm.RFP, key, unix.IPPROTO_IPIP, asm.Byte),
		asm.Mov.Imm(asm.R2, offNextHeader),
		asm.JEq.Imm(asm.R7, overhead6, "store"),
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.Mov.Imm(asm.R2, offChecksum),
		asm.Mov.Imm(asm.R3, word(hopLimit, unix.IPPROTO_IPV6)),
		asm.Mov.Imm(asm.R4, word(hopLimit, unix.IPPROTO_IPIP)),
		asm.Mov.Imm(asm.R5, 2),
		asm.FnL3CsumReplace.Call(),
		asm.Mov.Imm(asm.R2, offProtocol),

		asm.Mov.Reg(asm.R1, asm.R6).WithSymbol("store"),
		asm.Mov.Reg(asm.R3, asm.RFP),
		asm.Add.Imm(asm.R3, key),
		asm.Mov.Imm(asm.R4, 1),
		asm.Mov.Imm(asm.R5, 0),
		asm.FnSkbStoreBytes.Call(),
		asm.JNE.Imm(asm.R0, 0, "drop"),

		asm.Mov.Imm(asm.R0, lwtReroute).WithSymbol("done"),
		asm.Return(),

		asm.Mov.Imm(asm.R0, lwtDrop).WithSymbol("drop"),
		asm.Return(),
	)
}

// word is two bytes of a packet as the checksum helper takes them.
func word(a, b byte) int32 { return int32(binary.NativeEndian.Uint16([]byte{a, b})) }
