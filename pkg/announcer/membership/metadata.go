package membership

import (
	"encoding/binary"
	"math"
	"math/rand/v2"

	"github.com/hashicorp/memberlist"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

const (
	maxRules   = math.MaxInt32 // the highest number of election rules that is believed
	maxPadding = 64
	maxConfig  = 16 // of the hash of a configuration
	maxUnfit   = 32 // of a reason
)

// The flags of a metadata. Changing one is a change of the format; readers
// ignore those that they do not know.
const (
	flagPassive byte = 1 << iota
	flagDraining
	flagLeaving
	flagSettling
	flagStale
	flagNoAPI
	flagEstablished
)

// metadata is what a member says of itself in its gossip. Encoded it has about
// 40 bytes, less than 140 in any case, and the padding.
//
// The first release ended with the padding. What follows it is new in the
// second; a reader of the first ignores it, and a reader of the second takes
// it as not told where it is missing. Whoever adds more adds it at the end, in
// the same way.
type metadata struct {
	passive  bool
	draining bool
	leaving  bool // it has said good-bye; never gossiped, only told directly
	rules    int

	life     uint64 // a random number per process
	counter  uint64 // raised by a process that learns that it was taken for dead
	seq      uint64 // of this metadata within its life: higher is newer
	linksSeq uint64 // of the newest table of links; 0: none told yet

	padding int // bytes that say nothing

	settling, stale, noAPI bool
	established            bool // settled, and has taken part for the time of settling

	second bool   // all that follows is told
	config string // hash of the configuration
	unfit  string // a plan.Reason
	keys   string // the identities of the gossip keys that it holds, one after the other
}

// encode returns the metadata as it travels.
func (d metadata) encode() []byte {
	b := make([]byte, 0, 140+maxPadding)
	b = append(b, formatVersion, d.flags())
	b = binary.AppendUvarint(b, uint64(d.rules))
	b = binary.BigEndian.AppendUint64(b, d.life)
	b = binary.AppendUvarint(b, d.counter)
	b = binary.AppendUvarint(b, d.seq)
	b = binary.AppendUvarint(b, d.linksSeq)
	b = appendChunk(b, make([]byte, d.padding))
	if !d.second {
		return b
	}
	b = appendChunk(b, d.config)
	b = appendChunk(b, d.unfit)
	return appendChunk(b, d.keys)
}

func (d metadata) flags() byte {
	return flag(d.passive, flagPassive) | flag(d.draining, flagDraining) | flag(d.leaving, flagLeaving) |
		flag(d.settling, flagSettling) | flag(d.stale, flagStale) | flag(d.noAPI, flagNoAPI) |
		flag(d.established, flagEstablished)
}

// padded gives the metadata a random length. memberlist (v0.7.0) loses a
// message in its queue to another of the same length, so when several members
// publish at once, none is to be as long as the others each time.
func (d metadata) padded() metadata {
	d.padding = rand.IntN(maxPadding)
	return d
}

// decodeMetadata reads what encode wrote, what the release before wrote, and
// later versions of it.
func decodeMetadata(b []byte) (metadata, error) {
	if len(b) > memberlist.MetaMaxSize {
		return metadata{}, errGarbled
	}
	r := reader{buf: b}
	r.version()
	flags := r.byte()
	d := metadata{
		passive:     flags&flagPassive != 0,
		draining:    flags&flagDraining != 0,
		leaving:     flags&flagLeaving != 0,
		settling:    flags&flagSettling != 0,
		stale:       flags&flagStale != 0,
		noAPI:       flags&flagNoAPI != 0,
		established: flags&flagEstablished != 0,
		rules:       r.number(maxRules),
		life:        r.uint64(),
		counter:     r.uvarint(),
		seq:         r.uvarint(),
		linksSeq:    r.uvarint(),
	}
	r.chunk(maxPadding) // is not kept: two metadata that say the same are equal
	if len(r.buf) > 0 {
		d.second = true
		d.config = r.word(maxConfig)
		d.unfit = r.word(maxUnfit)
		d.keys = string(r.chunk(maxKeys * keyIDBytes))
	}
	if err := r.err(); err != nil {
		return metadata{}, err
	}
	return d, nil
}

// word returns a text of letters and digits. It ends up in logs and pages.
func (r *reader) word(most int) string {
	b := r.chunk(most)
	for _, c := range b {
		if (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			r.bad = true
			return ""
		}
	}
	return string(b)
}

// standing returns how fit the member takes itself to be.
func (d metadata) standing() plan.Standing {
	return plan.Standing{Settling: d.settling, Stale: d.stale, NoAPI: d.noAPI, Unfit: plan.Reason(d.unfit)}
}

// member returns what Members shows of a member.
func (d metadata) member(name string, links []plan.Link) plan.Member {
	return plan.Member{
		Name: name, Rules: d.rules, Passive: d.passive, Draining: d.draining,
		Standing: d.standing(), Config: d.config, Links: links,
	}
}
