package main

import (
	"log/slog"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/l2"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/record"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/source"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/status"
)

// parts is what the status reports about.
type parts struct {
	node        string
	observeOnly bool
	world       *source.World
	gossip      *gossip
	past        *record.Record
	speaker     layer2Speaker
	router      routers
	events      *status.Events
	log         *slog.Logger
}

func newStatus(p parts) *status.Status {
	return status.New(status.Options{
		Node:        p.node,
		Document:    p.world.Document,
		ConfigFault: p.world.ConfigFault,
		Unreachable: p.world.Unreachable,
		LeftOut:     func() map[string]string { return leftOut(p.world) },
		Answering:   p.speaker.Answering,
		Gossip:      p.gossip.stats,
		Warming:     p.past.Warming,
		Layer2:      func() status.Layer2 { return layer2(p.speaker) },
		BGP:         func() []status.BGPSession { return sessions(p.router.Sessions()) },
		Host:        func() []status.HostLink { return host(p.world) },
		ObserveOnly: p.observeOnly,
		Reloads:     p.router.Reloads,
		Moved:       p.events.Note,
		Log:         p.log,
	})
}

func host(world *source.World) []status.HostLink {
	out := []status.HostLink{}
	for _, l := range world.Host() {
		out = append(out, status.HostLink(l))
	}
	return out
}

func leftOut(world *source.World) map[string]string {
	out := map[string]string{}
	for name, cause := range world.LeftOut() {
		out[name] = string(cause)
	}
	return out
}

// layer2 translates what the speaker counts and knows into what is shown.
func layer2(speaker layer2Speaker) status.Layer2 {
	s := speaker.Stats()
	out := status.Layer2{
		Frames: map[string]status.Frames{"arp": frames(s.ARP), "ndp": frames(s.NDP)}, Conflicts: conflicts(speaker),
	}
	for _, l := range s.Links {
		out.Links = append(out.Links, status.Layer2Link{
			Name: l.Name, Open: l.Open, Errors: l.Errors, Overflow: l.Overflow,
			Broadcasts: l.Broadcasts, Filtered: l.Filtered, Deaf: l.Deaf,
		})
	}
	for _, h := range speaker.Withheld() {
		out.Withheld = append(out.Withheld, status.Withheld{
			Address: h.Address.String(), Link: h.Link, MAC: h.MAC, Node: h.Node, Since: h.Since,
		})
	}
	return out
}

func conflicts(speaker layer2Speaker) []status.Conflict {
	var out []status.Conflict
	for _, c := range speaker.Conflicts() {
		out = append(out, status.Conflict{
			Address: c.Address.String(), Link: c.Link, MAC: c.MAC, Node: c.Node,
			Cause: string(c.Cause), Since: c.Since, Refused: c.Refused,
		})
	}
	return out
}

// sessions translates what the sessions with routers are at.
func sessions(all []bgp.Session) []status.BGPSession {
	out := []status.BGPSession{}
	for _, s := range all {
		shown := status.BGPSession{
			Peer: s.Peer, Address: routerOf(s), Port: s.Port, ASN: s.ASN, LocalASN: s.LocalASN,
			State: string(s.State), Since: s.Since, Why: s.Why, Families: s.Families, Mute: s.Mute, Advertised: s.Advertised,
			Wanted: s.Wanted, Restarting: s.Restarting, BFD: s.BFD, Times: s.Times, UpdatesSent: s.UpdatesSent, UpdatesReceived: s.UpdatesReceived,
		}
		if s.RouterID.IsValid() {
			shown.RouterID = s.RouterID.String()
		}
		if s.Local.IsValid() {
			shown.Local = s.Local.String()
		}
		shown.Uncounted = s.Uncounted
		out = append(out, shown)
	}
	return out
}

// routerOf names where a router is: its address, or the link of an unnumbered
// session.
func routerOf(s bgp.Session) string {
	if s.Interface != "" {
		return s.Interface
	}
	return s.Address.String()
}

func frames(s l2.FamilyStats) status.Frames {
	out := status.Frames{
		Requests: s.Requests, Replies: s.Replies, Unsent: s.Unsent, Gratuitous: s.Gratuitous,
		Probes: s.Probes, Foreign: s.Foreign, Dropped: map[string]uint64{},
	}
	for cause, n := range s.Dropped {
		out.Dropped[cause.String()] = n
	}
	return out
}
