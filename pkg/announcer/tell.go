package announcer

import (
	"log/slog"
	"net/netip"
	"slices"
	"strings"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// tellTrouble logs a failure when it begins, changes and ends, not while it
// lasts.
func (a *Announcer) tellTrouble(err error) {
	was := a.trouble
	a.trouble = ""
	if err != nil {
		a.trouble = err.Error()
	}
	switch {
	case a.trouble == was:
	case err == nil:
		a.o.Log.Info("pass succeeded, the network agrees with the world")
	case !a.ready:
		a.o.Log.Info("not ready to announce yet", "because", err)
	default:
		a.o.Log.Warn("pass failed, keeping what is announced and trying again", "err", err)
	}
}

// tellChanges logs what has changed for this node, and what nobody announces
// if this node is the one to say so. A gain is told when a speaker answers.
func (a *Announcer) tellChanges(p Pass) {
	for _, c := range p.Changes {
		a.tellChange(p, c)
	}
	if len(a.gained) == 0 {
		return
	}
	answering := a.answering()
	for _, v := range p.Verdicts {
		c, gained := a.gained[v.Address]
		if gained && answering[v.Address] {
			a.o.Log.Info("announcing", attributes(c, "node", c.To, "links", strings.Join(c.Links, ", "))...)
			delete(a.gained, v.Address)
		}
	}
}

func (a *Announcer) tellChange(p Pass, c plan.Change) {
	_, unseen := a.gained[c.Address]
	delete(a.gained, c.Address)
	switch {
	case c.From == c.To && c.Cause == plan.LinkDown:
		a.o.Log.Warn("not heard, and no other node could announce it better", attributes(c)...)
	case c.To == p.Snapshot.Node:
		a.gained[c.Address] = c
	case c.From == p.Snapshot.Node && !unseen:
		a.o.Log.Info("no longer announcing", attributes(c, "now", c.To)...)
	case c.To == "" && c.Cause != plan.Released && isReporter(p, c):
		a.o.Log.Info("nobody announces", attributes(c)...)
	default:
		a.o.Log.Debug("announced elsewhere", attributes(c, "node", c.To)...)
	}
}

func isReporter(p Pass, c plan.Change) bool {
	i, _ := slices.BinarySearchFunc(p.Verdicts, c.Address, func(v plan.Verdict, address netip.Addr) int {
		return v.Address.Compare(address)
	})
	return plan.Reporter(p.Verdicts[i], p.Snapshot.Members) == p.Snapshot.Node
}

// attributes puts the address first and what led to a change last.
func attributes(c plan.Change, facts ...any) []any {
	out := append([]any{"address", c.Address}, facts...)
	if c.From != "" {
		out = append(out, "was", c.From)
	}
	if c.Cause != "" {
		out = append(out, slog.String("because", string(c.Cause)))
	}
	return out
}
