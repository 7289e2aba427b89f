package bgp

import (
	"net/netip"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// State is what a session is at. Changing a value is an API change.
type State string

// The states.
const (
	Idle        State = "Idle"        // waits for the next attempt: see Why
	Connecting  State = "Connecting"  // has sent a SYN
	Opening     State = "Opening"     // connected, and waits for the router's messages
	Established State = "Established" // routes are advertised
	Leaving     State = "Leaving"     // asks the router to avoid the routes
	Left        State = "Left"        // closed, because this node serves nothing: see Why
)

// Session is what a session is at, for people and metrics.
type Session struct {
	Peer      string
	Address   netip.Addr // invalid: whoever is on Interface
	Interface string     // of an unnumbered session
	Port      int
	ASN       uint32 // the router's, as it says; 0 before it has
	LocalASN  uint32
	Internal  bool
	RouterID  netip.Addr // ours

	State State
	Since time.Time
	Why   string // what ended the session before, or keeps it from coming up; empty: nothing
	Local netip.Addr

	// Families are those that both sides speak. Mute are those that are
	// configured and not sent, each with the reason.
	Families []config.Family
	Mute     map[config.Family]string

	// Advertised are the routes that the router has been told, sorted by
	// prefix; Wanted is how many it should be told.
	Advertised []plan.Route
	Wanted     int

	// Restarting: the router has promised to keep the routes while the
	// announcer restarts.
	Restarting bool

	// BFD is "up" or "down", or another word of its speaker; empty: there is
	// none.
	BFD string

	// Times is how often it has come up. UpdatesSent and UpdatesReceived count
	// UPDATE messages; those received are dropped. Uncounted: the backend does
	// not say how many there are.
	Times, UpdatesSent, UpdatesReceived uint64
	Uncounted                           bool
}

// NewSession returns the session of a backend that leaves sessions to another
// program and has heard nothing of this one yet.
func NewSession(p plan.Peering) Session {
	return Session{
		Peer: p.Peer.Name, Address: p.Peer.Address, Interface: p.Peer.Interface, Port: p.Peer.Port,
		LocalASN: p.Peer.LocalASN, Internal: p.Peer.Internal(), State: Idle, Wanted: len(p.Routes),
	}
}

// WaitsForOthers is why a session has not begun that FRR cannot have beside one
// that takes leave.
const WaitsForOthers = "begins when those have left that have another AS number or router ID of ours"
