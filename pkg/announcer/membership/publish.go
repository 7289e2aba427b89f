package membership

import (
	"context"
	"time"
)

const (
	// Updates that memberlist queues at the same time can replace each other,
	// and are then lost until the next full exchange. So each is published
	// more than once.
	repeats     = 3
	repeatEvery = 100 * time.Millisecond

	lookAtEvery = 100 * time.Millisecond // at keys, isolation and the accused
	askEvery    = 500 * time.Millisecond // for links that were not told
	askMost     = 32                     // members at a time

	// maxPacket is what surely fits into one packet together with
	// memberlist's headers. More goes by a connection.
	maxPacket = 1200

	// fewMembers is up to how many members are told every change directly too.
	// The gossip is enough for more, and takes longer.
	fewMembers = 100

	connections = 16 // at a time, to tell many members something reliably
)

// publisher hands what changes to the gossip and to the members directly,
// until ctx ends. It works from New to Leave, so that a draining announcer is
// heard after Run has ended.
func (m *Members) publisher(ctx context.Context) {
	defer close(m.published)
	ask := time.NewTicker(askEvery)
	defer ask.Stop()
	look := time.NewTicker(lookAtEvery)
	defer look.Stop()
	repeat := time.NewTimer(repeatEvery)
	defer repeat.Stop()
	var told metadata
	left := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-ask.C:
			m.view.sweep(time.Now())
			m.ask()
			continue
		case <-look.C:
			m.look(time.Now())
			continue
		case <-m.owing:
			m.post(time.Now())
			continue
		case <-m.changed:
			left = repeats
			told = m.tell(ctx, told)
		case <-repeat.C:
		}
		if left > 0 {
			m.update()
			left--
			repeat.Reset(repeatEvery)
		}
	}
}

// look does what no event tells of.
func (m *Members) look(now time.Time) {
	m.post(now)
	for _, n := range m.view.lapsed(now, m.Isolated()) {
		m.tellLost(&n)
	}
	if m.silent(now) {
		m.gathering.Store(int64(now.Add(gatherFor).Sub(m.born)))
	}
	if isolated := m.Isolated(); m.isolated.Swap(isolated) != isolated {
		m.o.Kick()
	}
	if !m.keys.pending() || !m.view.calm(now) {
		return
	}
	changed, err := m.keys.review(m.view.holdings(), now)
	switch {
	case err != nil:
		m.o.Log.Error("gossip keys are in disorder", "err", err)
	case changed:
		m.o.Log.Info("another gossip key signs now")
	}
}

// post sends what is owed to single members.
func (m *Members) post(now time.Time) {
	for _, l := range m.view.letters(now) {
		m.send(l)
	}
}

// update hands the metadata to the gossip. memberlist would wait until the
// gossip has been sent out; nobody here needs to know.
func (m *Members) update() {
	_ = m.list.UpdateNode(time.Millisecond)
	m.counts.updates.Add(1)
}

// tell sends directly what has changed since told and cannot wait for the
// gossip. It returns what is told now.
func (m *Members) tell(ctx context.Context, told metadata) metadata {
	now, table := m.view.metadata(), m.view.table()
	if now.linksSeq != told.linksSeq {
		m.sendAll(message{kind: kindTable, table: table})
	}
	if now.draining != told.draining {
		m.tellState()
		m.tasks.run(func() { m.insist(ctx, m.stateMessage()) })
	} else if now != told && m.view.staying() <= fewMembers {
		m.tellState()
	}
	return now
}

// tellState sends this announcer's metadata to every member.
func (m *Members) tellState() { m.sendAll(m.stateMessage()) }

func (m *Members) stateMessage() message {
	return message{kind: kindState, name: m.o.Name, state: m.view.metadata()}
}

func (m *Members) sendAll(msg message) {
	for _, node := range m.view.nodes() {
		m.send(letter{node, msg})
	}
}

// send sends one message to one member, and does not wait for anything. A
// packet that is lost is made good by the gossip, by another question or by
// the next full exchange.
func (m *Members) send(l letter) {
	b := l.message.encode()
	if len(b) > maxPacket {
		m.tasks.run(func() { _ = m.list.SendReliable(&l.to, b) })
		return
	}
	_ = m.list.SendBestEffort(&l.to, b)
}

// insist sends a message to every member over connections, some at a time.
func (m *Members) insist(ctx context.Context, msg message) {
	b := msg.encode()
	free := make(chan struct{}, connections)
	for _, node := range m.view.nodes() {
		select {
		case <-ctx.Done():
			return
		case free <- struct{}{}:
		}
		m.tasks.run(func() {
			// Whom this does not reach is dead, or hears of it by the gossip.
			_ = m.list.SendReliable(&node, b)
			<-free
		})
	}
}

// ask asks the members whose links we do not know, or not the newest.
func (m *Members) ask() {
	for _, node := range m.view.wanting(askMost) {
		m.send(letter{node, message{kind: kindAsk, name: m.o.Name}})
	}
}
