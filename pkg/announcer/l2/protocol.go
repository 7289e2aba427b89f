package l2

import (
	"net/netip"
	"slices"

	"golang.org/x/net/bpf"
)

// protocol is what differs between ARP and NDP. All of it is pure.
type protocol interface {
	name() string
	etherType() int
	steps() steps

	// group returns the multicast group in which an address is asked for, if
	// it is not asked for by broadcast.
	group(netip.Addr) (netip.Addr, bool)

	// judge says what a received frame means. It allocates nothing: a reply
	// is written to buf, which must have room for one.
	judge(t *table, frame, buf []byte) verdict

	// frame makes what is sent unasked.
	frame(k kind, own mac, address netip.Addr) []byte

	// filter drops frames from own, and those that are neither for nor about
	// an address in one of the prefixes. Every path through it returns.
	filter(own mac, prefixes []netip.Prefix) []bpf.Instruction
}

// table is what a reader knows. It is immutable but for the states of the claims.
type table struct {
	mac    mac   // of the link
	owns   []mac // of all links that the speaker uses, this one included
	claims map[netip.Addr]*claim
}

// own tells whether m is ours: a frame of another link in the same network is
// no more foreign than one that comes back from a bridge.
func (t *table) own(m mac) bool { return slices.Contains(t.owns, m) }

// verdict is what a frame means for a link.
type verdict struct {
	cause Cause  // why it means nothing, or accepted
	reply []byte // what to send, if anything

	// seen is a claim whose address another station says it has, by its MAC;
	// announced if it says so to everybody.
	seen      *claim
	by        mac
	announced bool
}

// Cause says why a received frame was dropped.
type Cause uint8

// The causes.
const (
	accepted       Cause = iota
	Malformed            // truncated, of other types, with an impossible sender
	OtherOperation       // neither a request nor a reply, neither a solicitation nor an advertisement
	OwnFrame             // sent by this node
	OtherStation         // sent to another Ethernet address
	NotClaimed           // about an address that is not announced on the link
	HopLimit             // NDP: forwarded by a router
	Checksum             // NDP
	causes
)

// String returns the word that names the cause in metrics. Changing one is an
// API change.
func (c Cause) String() string {
	return [causes]string{
		"accepted", "malformed", "other_operation", "own_frame", "other_station", "not_claimed", "hop_limit", "checksum",
	}[c]
}

// kind is a frame that is sent unasked.
type kind uint8

const (
	request kind = iota // an ARP announcement in request form, or an unsolicited neighbour advertisement
	reply               // an ARP announcement in reply form
	probe               // a question to whom the address belongs that nobody learns from
)
