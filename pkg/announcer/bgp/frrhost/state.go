package frrhost

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp/roster"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// neighbour is what FRR says of one.
type neighbour struct {
	RemoteAS     uint32 `json:"remoteAs"`
	State        string `json:"bgpState"`
	LastReset    string `json:"lastResetDueTo"`
	Notified     string `json:"lastNotificationReason"` // if that was a NOTIFICATION
	Local        string `json:"hostLocal"`
	Connections  uint64 `json:"connectionsEstablished"`
	Capabilities struct {
		GracefulRestart string `json:"gracefulRestart"`
	} `json:"neighborCapabilities"`
	Messages struct {
		Sent     uint64 `json:"updatesSent"`
		Received uint64 `json:"updatesRecv"`
	} `json:"messageStats"`
	Families map[string]struct {
		Sent *int `json:"sentPrefixCounter"`
	} `json:"addressFamilyInfo"`
	BFD *struct {
		Status string `json:"status"`
	} `json:"peerBfdInfo"`
}

// agreed is what FRR says of a capability that both sides have.
const agreed = "advertisedAndReceived"

// states are ours by FRR's.
var states = map[string]bgp.State{
	"Idle": bgp.Idle, "Connect": bgp.Connecting, "Active": bgp.Connecting,
	"OpenSent": bgp.Opening, "OpenConfirm": bgp.Opening, "Established": bgp.Established,
}

// words are families by FRR's names.
var words = map[config.Family]string{config.IPv4: "ipv4Unicast", config.IPv6: "ipv6Unicast"}

// show works the sessions out, for people and metrics.
func (s *Speaker) show(now time.Time, mute map[string]error, trouble error) {
	var out []bgp.Session
	for _, m := range s.roster.Members() {
		x := s.session(m, now)
		switch err := mute[m.Peer.Name]; {
		case m.Step == roster.Waits:
		case err != nil:
			x.Why = "the password: " + err.Error()
		case trouble != nil:
			x.Why = trouble.Error()
		}
		out = append(out, x)
	}
	s.keeper.Show(now, out)
}

// session is one session as FRR has last told it.
func (s *Speaker) session(m roster.Member, now time.Time) bgp.Session {
	p := m.Peer
	x := bgp.NewSession(m.Peering)
	x.RouterID = bgp.RouterID(s.o.Node, p)
	switch m.Step {
	case roster.Left:
		x.State, x.Why = bgp.Left, string(m.Leaving)
		return x
	case roster.Waits:
		x.Why = bgp.WaitsForOthers
		return x
	}
	n, why := s.neighbour(p, now)
	if why != "" {
		x.Why = why
		return x
	}
	x.ASN, x.State = n.RemoteAS, states[n.State]
	x.Times, x.UpdatesSent, x.UpdatesReceived = n.Connections, n.Messages.Sent, n.Messages.Received
	if local, err := netip.ParseAddr(n.Local); err == nil {
		x.Local = local
	}
	if n.BFD != nil {
		x.BFD = strings.ToLower(n.BFD.Status)
	}
	if x.State != bgp.Established {
		x.Why = n.ended(p)
		return x
	}
	s.established(&x, m, n)
	return x
}

// ended says what has ended a session, or keeps it from coming up.
func (n neighbour) ended(p config.Peer) string {
	switch {
	case n.Notified == "":
		return n.LastReset
	case n.Notified == badPeerAS && n.LastReset == weNotified && p.Kind == config.External:
		return "FRR takes the router for an internal one, for it has the AS number that FRR has itself: unless it is internal, say its number in asn"
	default:
		return n.LastReset + ": " + n.Notified
	}
}

// FRR's words for what it has against a router's OPEN (RFC 4271, section 6.2).
const (
	weNotified = "BGP Notification send"
	badPeerAS  = "OPEN Message Error/Bad Peer AS"
)

// established fills in what is so while a session is up.
func (s *Speaker) established(x *bgp.Session, m roster.Member, n neighbour) {
	x.Restarting = m.Peer.GracefulRestart > 0 && n.Capabilities.GracefulRestart == agreed
	if m.Leaves() {
		x.State = bgp.Leaving
	}
	sent := 0
	for _, f := range m.Peer.Families {
		if of, ok := n.Families[words[f]]; !ok || of.Sent == nil {
			if x.Mute == nil {
				x.Mute = map[config.Family]string{}
			}
			x.Mute[f] = "the router does not speak it"
			continue
		}
		x.Families = append(x.Families, f)
		sent += *n.Families[words[f]].Sent
	}
	if !s.settled() || s.result.Error != "" {
		return // what FRR has told is between two configurations
	}
	x.Advertised = slices.DeleteFunc(slices.Clone(m.Routes), func(r plan.Route) bool {
		return !slices.Contains(x.Families, config.FamilyOf(r.Prefix.Addr()))
	})
	if sent != len(x.Advertised) {
		x.Why = fmt.Sprintf("FRR has sent %d of %d prefixes so far", sent, len(x.Advertised))
	}
}

// neighbour returns what FRR says of a peer, or why it says nothing.
func (s *Speaker) neighbour(p config.Peer, now time.Time) (n neighbour, why string) {
	switch age := s.report.age(now); {
	case s.report.At == 0:
		return n, "nothing has been heard of FRR: does reload.py run beside it, with this directory?"
	case age > silence:
		return n, fmt.Sprintf("nothing has been heard of FRR for %s: does reload.py run beside it?", age.Round(time.Second))
	case s.report.Error != "":
		return n, "FRR does not answer: " + s.report.Error
	}
	raw, ok := s.report.BGP[cmp.Or(p.VRF, "default")][routerOf(p).name]
	if !ok {
		return n, "FRR does not have this session yet"
	}
	if err := json.Unmarshal(raw, &n); err != nil {
		return n, "read what FRR says of the session: " + err.Error()
	}
	return n, ""
}
