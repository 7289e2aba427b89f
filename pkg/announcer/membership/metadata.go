package membership

import (
	"encoding/binary"
	"math"
	"math/rand/v2"

	"github.com/hashicorp/memberlist"
)

const (
	maxRules   = math.MaxInt32 // the highest number of election rules that is believed
	maxPadding = 64
)

// The flags of a metadata. Changing one is a change of the format.
const (
	flagPassive byte = 1 << iota
	flagDraining
	flagLeaving
)

// metadata is what a member says of itself in its gossip. Encoded it has
// about 16 bytes, less than 60 in any case, and the padding.
type metadata struct {
	passive  bool
	draining bool
	leaving  bool // it has said good-bye; never gossiped, only told directly
	rules    int

	life     uint64 // a random number per process
	counter  uint64 // to be raised by a process that was taken for dead; for now always 0
	seq      uint64 // of this metadata within its life: higher is newer
	linksSeq uint64 // of the newest table of links; 0: none told yet

	padding int // bytes that say nothing
}

// encode returns the metadata as it travels.
func (d metadata) encode() []byte {
	b := make([]byte, 0, 60+maxPadding)
	b = append(b, formatVersion, flag(d.passive, flagPassive)|flag(d.draining, flagDraining)|flag(d.leaving, flagLeaving))
	b = binary.AppendUvarint(b, uint64(d.rules))
	b = binary.BigEndian.AppendUint64(b, d.life)
	b = binary.AppendUvarint(b, d.counter)
	b = binary.AppendUvarint(b, d.seq)
	b = binary.AppendUvarint(b, d.linksSeq)
	return appendChunk(b, make([]byte, d.padding))
}

// padded gives the metadata a random length. memberlist (v0.7.0) loses a
// message in its queue to another of the same length, so when several members
// publish at once, none is to be as long as the others each time.
func (d metadata) padded() metadata {
	d.padding = rand.IntN(maxPadding)
	return d
}

// decodeMetadata reads what encode wrote, and later versions of it.
func decodeMetadata(b []byte) (metadata, error) {
	if len(b) > memberlist.MetaMaxSize {
		return metadata{}, errGarbled
	}
	r := reader{buf: b}
	r.version()
	flags := r.byte()
	d := metadata{
		passive:  flags&flagPassive != 0,
		draining: flags&flagDraining != 0,
		leaving:  flags&flagLeaving != 0,
		rules:    r.number(maxRules),
		life:     r.uint64(),
		counter:  r.uvarint(),
		seq:      r.uvarint(),
		linksSeq: r.uvarint(),
	}
	r.chunk(maxPadding) // is not kept: two metadata that say the same are equal
	if err := r.err(); err != nil {
		return metadata{}, err
	}
	return d, nil
}
