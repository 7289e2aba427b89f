package main

import (
	"log/slog"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/l2"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/source"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/status"
)

// parts is what the status reports about.
type parts struct {
	node    string
	world   *source.World
	gossip  *gossip
	speaker *l2.Speaker
	events  *status.Events
	log     *slog.Logger
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
		Layer2:      func() status.Layer2 { return layer2(p.speaker.Stats(), p.speaker.Conflicts()) },
		Moved:       p.events.Note,
		Log:         p.log,
	})
}

func leftOut(world *source.World) map[string]string {
	out := map[string]string{}
	for name, cause := range world.LeftOut() {
		out[name] = string(cause)
	}
	return out
}

// layer2 translates what the speaker counts into what is shown.
func layer2(s l2.Stats, conflicts []l2.Conflict) status.Layer2 {
	out := status.Layer2{Frames: map[string]status.Frames{"arp": frames(s.ARP), "ndp": frames(s.NDP)}}
	for _, link := range s.Links {
		out.Links = append(out.Links, status.Layer2Link{Name: link.Name, Open: link.Open, Errors: link.Errors, Overflow: link.Overflow})
	}
	for _, c := range conflicts {
		out.Conflicts = append(out.Conflicts, status.Conflict{Address: c.Address.String(), Link: c.Link, MAC: c.MAC, Node: c.Node})
	}
	return out
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
