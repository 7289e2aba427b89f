package l2

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/net/bpf"
)

// snapLen is how much of a frame a filter lets through: all of it.
const snapLen = 1 << 16

var (
	drop   = bpf.RetConstant{Val: 0}
	accept = bpf.RetConstant{Val: snapLen}
)

// Kinds of frames as the kernel sees them (linux/if_packet.h).
const (
	toUs        = 0
	toAll       = 1
	toMulticast = 2
)

// toThisStation drops what is not for this link. The kernel's view is needed:
// on a link without a sub-interface for it, a frame of a foreign VLAN arrives
// here without its tag, and only its kind (for another host) tells.
var toThisStation = dropUnless(bpf.LoadExtension{Num: bpf.ExtType}, toUs, toAll, toMulticast)

// program assembles the filter of a socket. A frame that it refuses costs no
// wake-up.
func program(p protocol, own mac, prefixes []netip.Prefix) ([]bpf.RawInstruction, error) {
	raw, err := bpf.Assemble(slices.Concat(toThisStation, p.filter(own, prefixes)))
	if err != nil {
		return nil, fmt.Errorf("assemble the %s filter: %w", p.name(), err)
	}
	return raw, nil
}

// dropUnless drops a frame in which load finds none of the values.
func dropUnless(load bpf.Instruction, values ...uint32) []bpf.Instruction {
	out := []bpf.Instruction{load}
	for i, v := range values {
		toEnd := uint8(len(values) - i)
		out = append(out, bpf.JumpIf{Cond: bpf.JumpEqual, Val: v, SkipTrue: toEnd})
	}
	return append(out, drop)
}

// dropFrom drops a frame that has own as its Ethernet source.
func dropFrom(own mac) []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: 8, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: binary.BigEndian.Uint32(own[2:]), SkipTrue: 3},
		bpf.LoadAbsolute{Off: 6, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(binary.BigEndian.Uint16(own[:])), SkipTrue: 1},
		drop,
	}
}

// acceptIn accepts a frame whose address at off lies in one of the prefixes.
// A load beyond the end of the frame drops it.
func acceptIn(off uint32, prefixes []netip.Prefix) []bpf.Instruction {
	var out []bpf.Instruction
	for _, p := range prefixes {
		out = append(out, acceptInOne(off, p)...)
	}
	return out
}

// acceptInOne compares the words that the prefix covers, the last one under a mask.
func acceptInOne(off uint32, p netip.Prefix) []bpf.Instruction {
	address := p.Masked().Addr().AsSlice()
	var words [][]bpf.Instruction
	for left, at := p.Bits(), 0; left > 0; left, at = left-32, at+4 {
		word := []bpf.Instruction{bpf.LoadAbsolute{Off: off + uint32(at), Size: 4}}
		if left < 32 {
			word = append(word, bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: ^uint32(0) << (32 - left)})
		}
		words = append(words, append(word, bpf.JumpIf{
			Cond: bpf.JumpNotEqual, Val: binary.BigEndian.Uint32(address[at:]),
		}))
	}
	out := slices.Concat(append(words, []bpf.Instruction{accept})...)
	for i, ins := range out {
		if jump, ok := ins.(bpf.JumpIf); ok {
			jump.SkipTrue = uint8(len(out) - i - 1)
			out[i] = jump
		}
	}
	return out
}
