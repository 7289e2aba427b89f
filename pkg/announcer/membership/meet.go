package membership

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"
)

const (
	meetEvery = time.Second

	// Who is alone looks harder: it is starting, or was cut off.
	alonePings, aloneJoins = 9, 3
	pings, joins           = 3, 1

	// refuteWithin is the time for a member to answer that it is not dead.
	refuteWithin = 50 * time.Millisecond
)

// absentee is a peer that is no live member.
type absentee struct {
	name    string
	address netip.Addr
}

// attempt is the outcome of joining a peer.
type attempt struct {
	absentee
	err error
}

// troubles are what has been logged and not been overcome yet.
type troubles struct {
	peers bool            // they are not known
	joins map[string]bool // peers that answer a ping and cannot be joined
}

// Run joins, and rejoins whom it lost, until ctx ends. It does not leave.
func (m *Members) Run(ctx context.Context) error {
	tick := time.NewTicker(meetEvery)
	defer tick.Stop()
	known := &troubles{joins: map[string]bool{}}
	for {
		done := make(chan struct{})
		if !m.tasks.run(func() {
			defer close(done)
			m.meet(ctx, known)
		}) {
			return nil // after Leave
		}
		select {
		case <-done:
		case <-ctx.Done():
			return nil // a join that hangs must not hold up the departure
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// meet joins some of the peers that are missing. memberlist alone never heals
// a partition. A switched-off peer costs a connection attempt of a second, so
// some are pinged first, at once, and only who answers is joined.
func (m *Members) meet(ctx context.Context, known *troubles) {
	peers, err := m.o.Peers()
	switch {
	case err != nil && !known.peers:
		m.o.Log.Warn("peers are not known, will retry", "err", err, "after", meetEvery)
	case err == nil && known.peers:
		m.o.Log.Info("peers are known again")
	}
	known.peers = err != nil
	if err != nil {
		return
	}
	ping, join := pings, joins
	if m.view.staying() == 0 {
		ping, join = alonePings, aloneJoins
	}
	absent := pick(m.view.absent(peers, time.Now()), ping)
	for _, a := range m.joinAll(ctx, m.answering(absent, join)) {
		if a.err != nil && !known.joins[a.name] {
			m.o.Log.Warn("peer answers but cannot be joined, will retry", "peer", a.name, "err", a.err)
		}
		known.joins[a.name] = a.err != nil
	}
}

// pick returns up to n of the absentees, at random.
func pick(absent []absentee, n int) []absentee {
	rand.Shuffle(len(absent), func(i, j int) { absent[i], absent[j] = absent[j], absent[i] })
	return absent[:min(n, len(absent))]
}

// answering pings all at once and returns the first that answer, up to most.
func (m *Members) answering(absent []absentee, most int) []absentee {
	answers := make(chan absentee, len(absent))
	for _, a := range absent {
		go func() {
			// The name is part of the ping: another host with the address of
			// an absent one does not answer. The time-out is that of a probe.
			if _, err := m.list.Ping(a.name, m.udp(a)); err != nil {
				a = absentee{}
			}
			answers <- a
		}()
	}
	var out []absentee
	for range absent {
		if a := <-answers; a.name != "" {
			out = append(out, a)
		}
		if len(out) == most {
			break
		}
	}
	return out
}

// joinAll joins all at once.
func (m *Members) joinAll(ctx context.Context, absent []absentee) []attempt {
	attempts := make(chan attempt, len(absent))
	for _, a := range absent {
		go func() { attempts <- attempt{a, m.join(ctx, a)} }()
	}
	var out []attempt
	for range absent {
		out = append(out, <-attempts)
	}
	return out
}

// join exchanges all state with a peer. If each side holds the other for dead,
// that only lets them hear so and refute it, and it takes a second exchange
// to tell.
func (m *Members) join(ctx context.Context, a absentee) error {
	for range 2 {
		m.counts.joins.Add(1)
		if _, err := m.list.Join([]string{m.udp(a).String()}); err != nil {
			m.counts.joinFailures.Add(1)
			if first := errors.Unwrap(err); first != nil {
				err = first // memberlist makes a list of several lines
			}
			return err
		}
		// Whoever started with us may have replaced our news in the gossip.
		signal(m.changed)
		if m.view.has(a.name) {
			return nil
		}
		select {
		case <-time.After(refuteWithin):
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

func (m *Members) udp(a absentee) *net.UDPAddr {
	return net.UDPAddrFromAddrPort(netip.AddrPortFrom(a.address, uint16(m.o.Port)))
}
