package membership

import (
	"errors"
	"net/netip"
	"time"

	"github.com/hashicorp/memberlist"
)

// delegate is what memberlist calls. memberlist holds locks while it does, so
// nothing here waits or calls memberlist.
type delegate struct{ m *Members }

// NodeMeta is asked for before every update of this announcer's own metadata.
// It is always well below the limit of 512 bytes.
func (d delegate) NodeMeta(int) []byte { return d.m.view.metadata().padded().encode() }

// GetBroadcasts has nothing to add to the gossip: what is not metadata is told
// directly.
func (d delegate) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState gives the tables of links to whom we exchange all state with.
func (d delegate) LocalState(bool) []byte { return encodeState(d.m.view.state()) }

// MergeRemoteState takes in the tables that the other side knows.
func (d delegate) MergeRemoteState(buf []byte, _ bool) {
	tables, err := decodeState(buf)
	d.m.count(err)
	changed := false
	for _, t := range tables {
		if d.m.view.put(t, time.Now()) {
			changed = true
		}
	}
	d.m.kickIf(changed)
}

// NotifyMsg takes in a direct message.
func (d delegate) NotifyMsg(buf []byte) {
	m, err := decodeMessage(buf)
	d.m.count(err)
	if err != nil {
		return
	}
	switch m.kind {
	case kindState:
		d.m.kickIf(d.m.view.hear(m.name, m.state))
	case kindTable:
		d.m.kickIf(d.m.view.put(m.table, time.Now()))
	case kindAsk:
		if d.m.view.asked(m.name) {
			signal(d.m.owing)
		}
	case kindReturned:
		if d.m.view.wasGone(m, time.Now()) {
			d.m.o.Log.Warn("was taken for dead by other members, and am back")
			signal(d.m.changed) // another life has begun
			d.m.o.Died()
			d.m.o.Kick()
		}
	}
}

// NotifyAlive refuses members that we could not make sense of, and lives that
// have ended.
func (d delegate) NotifyAlive(n *memberlist.Node) error {
	err := d.m.view.refuse(n, time.Now())
	d.m.count(err)
	if errors.Is(err, errDied) {
		d.m.o.Log.Debug("member was taken for dead, and is told so", "member", n.Name, "address", addressOf(n))
		signal(d.m.owing)
	}
	return err
}

// NotifyJoin takes in a new member.
func (d delegate) NotifyJoin(n *memberlist.Node) {
	if n.Name == d.m.o.Name {
		return
	}
	if d.m.view.trusts(n.Name) {
		d.m.kickIf(d.m.view.update(n))
		return
	}
	returned := d.m.view.join(n)
	d.m.o.Log.Info("member joined", "member", n.Name, "address", addressOf(n), "returned", returned)
	if returned {
		signal(d.m.owing)
	}
	d.m.o.Kick()
}

// NotifyUpdate takes over new metadata.
func (d delegate) NotifyUpdate(n *memberlist.Node) { d.m.kickIf(d.m.view.update(n)) }

// NotifyLeave removes a member that left or is taken for dead.
func (d delegate) NotifyLeave(n *memberlist.Node) {
	if n.Name == d.m.o.Name {
		signal(d.m.departing)
		return
	}
	now := time.Now()
	if d.m.view.doubts(n.Name, d.m.door.silenceOf(addressOf(n), now), now) {
		d.m.o.Log.Debug("member is said to be dead, and was heard a moment ago", "member", n.Name)
		return
	}
	switch was, left := d.m.view.leftOrLost(n.Name, now, d.m.Isolated()); {
	case !was:
	case left:
		d.m.o.Log.Info("member left", "member", n.Name)
		d.m.o.Kick()
	default:
		d.m.tellLost(n)
	}
}

// tellLost tells that a member is one no more.
func (m *Members) tellLost(n *memberlist.Node) {
	m.o.Log.Warn("member lost", "member", n.Name, "address", addressOf(n))
	m.o.Kick()
}

// AckPayload has nothing to add to the answer to a ping.
func (d delegate) AckPayload() []byte { return nil }

// NotifyPingComplete takes in that a member has answered a ping.
func (d delegate) NotifyPingComplete(n *memberlist.Node, roundTrip time.Duration, _ []byte) {
	d.m.view.answered(n.Name, time.Now().Add(-roundTrip))
}

// addressOf returns the address of a member for the log.
func addressOf(n *memberlist.Node) netip.Addr {
	a, _ := netip.AddrFromSlice(n.Addr)
	return a.Unmap()
}

func (m *Members) kickIf(changed bool) {
	if changed {
		m.o.Kick()
	}
}

// count counts what a peer sent and nobody can read.
func (m *Members) count(err error) {
	if errors.Is(err, errGarbled) {
		m.counts.garbled.Add(1)
	}
}
