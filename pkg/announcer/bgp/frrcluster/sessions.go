package frrcluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp/frrk8s"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp/roster"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// checked is what was found out about a Secret.
type checked struct {
	seen  bool      // it could be looked at: it is there or not
	err   error     // what is wrong with it, or why it could not be looked at
	again time.Time // when to look again
}

// How soon a Secret is looked at again: one that is missed, and one that is
// there.
const (
	missedSecret = 5 * time.Second
	knownSecret  = 5 * time.Minute
)

// readable leaves out the peerings whose password frr-k8s could not read: it
// would take nothing of what this node has, whoever has written it. It returns
// why, by peer. Where nothing is known of a Secret all stays as it is there.
func (s *Speaker) readable(ctx context.Context, all []plan.Peering, there []byte, now time.Time) ([]plan.Peering, map[string]error) {
	var out []plan.Peering
	why := map[string]error{}
	for _, p := range all {
		if name := p.Peer.PasswordSecret; name != "" {
			if c := s.check(ctx, name, now); c.err != nil && (c.seen || !refers(there, name)) {
				why[p.Peer.Name] = fmt.Errorf("the password: %w", c.err)
				continue
			}
		}
		out = append(out, p)
	}
	return out, why
}

// refers tells whether an FRRConfiguration names a Secret already.
func refers(object []byte, secret string) bool {
	var o frrk8s.Object
	if json.Unmarshal(object, &o) != nil {
		return false
	}
	return slices.ContainsFunc(o.Spec.BGP.Routers, func(r frrk8s.Router) bool {
		return slices.ContainsFunc(r.Neighbors, func(n frrk8s.Neighbor) bool {
			return n.PasswordSecret != nil && n.PasswordSecret.Name == secret
		})
	})
}

// check looks at a Secret if it is time to. What is known of it stays known
// while it cannot be read.
func (s *Speaker) check(ctx context.Context, name string, now time.Time) checked {
	c, known := s.passwords[name]
	if known && now.Before(c.again) {
		return c
	}
	text, err := s.o.API.Get(ctx, "/api/v1/namespaces/"+url.PathEscape(s.o.Namespace)+"/secrets/"+url.PathEscape(name), nil)
	seen := err == nil || errors.Is(err, ErrAbsent)
	switch {
	case !seen && c.seen:
		seen, err = true, c.err
	case errors.Is(err, ErrAbsent):
		err = fmt.Errorf("there is no Secret %s/%s: it has to be beside frr-k8s", s.o.Namespace, name)
	case errors.Is(err, ErrForbidden):
		err = fmt.Errorf("the announcer has no right to read Secret %s/%s: name it in the Role announcer-frr-k8s", s.o.Namespace, name)
	case err != nil:
		err = fmt.Errorf("read Secret %s/%s: %w", s.o.Namespace, name, err)
	default:
		if err = frrk8s.CheckSecret(text); err != nil {
			err = fmt.Errorf("the Secret %s/%s: %w", s.o.Namespace, name, err)
		}
	}
	c = checked{seen, err, now.Add(knownSecret)}
	if err != nil {
		c.again = now.Add(missedSecret)
	}
	s.passwords[name] = c
	return c
}

// states are ours by FRR's.
var states = map[string]bgp.State{
	"Idle": bgp.Idle, "Connect": bgp.Connecting, "Active": bgp.Connecting,
	"OpenSent": bgp.Opening, "OpenConfirm": bgp.Opening, "Established": bgp.Established,
}

// told is what frr-k8s says of this node.
type told struct {
	sessions map[string]frrk8s.Session // by key of sessionKey
	node     frrk8s.NodeState
	fault    string // why that is not to be had; empty: it is
}

func sessionKey(vrf, peer string) string { return vrf + "|" + peer }

// hear reads what frr-k8s has told.
func (s *Speaker) hear() told {
	t := told{sessions: map[string]frrk8s.Session{}}
	states := s.states.state()
	for _, text := range states.items {
		if x, err := frrk8s.ReadSession(text); err == nil {
			t.sessions[sessionKey(x.VRF, x.Peer)] = x
		}
	}
	node := s.node.state()
	switch text, ok := node.items[s.o.Node]; {
	case states.err != nil:
		t.fault = "read the BGPSessionStates: " + states.err.Error()
	case node.err != nil:
		t.fault = "read the FRRNodeState: " + node.err.Error()
	case !ok:
		t.fault = "frr-k8s says nothing of this node: does it run here?"
	default:
		var err error
		if t.node, err = frrk8s.ReadNodeState(text); err != nil {
			t.fault = err.Error()
		}
	}
	return t
}

// show works the sessions out, for people and metrics.
func (s *Speaker) show(now time.Time, last outcome) {
	before := map[string]bgp.Session{}
	for _, old := range s.Sessions() {
		before[old.Peer] = old
	}
	heard := s.hear()
	var out []bgp.Session
	for _, m := range s.roster.Members() {
		x := s.session(m, heard)
		switch err := last.why[m.Peer.Name]; {
		case x.State == bgp.Left || m.Step == roster.Waits:
		case err != nil:
			x.State, x.Why = bgp.Idle, err.Error()
		case last.err != nil:
			x.Why = last.err.Error()
		}
		old, known := before[x.Peer]
		if up(x.State) && !(known && up(old.State)) {
			s.times[roster.Key(m.Peer)]++
		}
		x.Times = s.times[roster.Key(m.Peer)]
		out = append(out, x)
	}
	s.keeper.Show(now, out)
}

func up(s bgp.State) bool { return s == bgp.Established || s == bgp.Leaving }

// session is one session as frr-k8s has last told it.
func (s *Speaker) session(m roster.Member, heard told) bgp.Session {
	p := m.Peer
	x := bgp.NewSession(m.Peering)
	x.RouterID, x.Uncounted = p.RouterID, true
	switch m.Step {
	case roster.Left:
		x.State, x.Why = bgp.Left, string(m.Leaving)
		return x
	case roster.Waits:
		x.Why = bgp.WaitsForOthers
		return x
	}
	told, ok := heard.sessions[sessionKey(p.VRF, frrk8s.PeerName(p))]
	switch {
	case ok:
		x.State, x.BFD = cmp.Or(states[told.BGP], bgp.Idle), told.BFD
	case heard.fault == "":
		x.Why = "frr-k8s has told nothing of this session yet"
	}
	x.Why = cmp.Or(heard.fault, heard.node.Fault, x.Why)
	if x.State != bgp.Established {
		return x
	}
	x.ASN, x.Families, x.Restarting = p.ASN, p.Families, p.GracefulRestart > 0
	if m.Leaves() {
		x.State = bgp.Leaving
	}
	x.Advertised = slices.DeleteFunc(slices.Clone(m.Routes), func(r plan.Route) bool {
		return !heard.node.Running[frrk8s.Network{VRF: p.VRF, Prefix: r.Prefix}] || !slices.Contains(p.Families, config.FamilyOf(r.Prefix.Addr()))
	})
	if x.Why == "" && len(x.Advertised) < x.Wanted {
		x.Why = fmt.Sprintf("frr-k8s has told of %d of %d prefixes so far: it looks every 30 s", len(x.Advertised), x.Wanted)
	}
	return x
}
