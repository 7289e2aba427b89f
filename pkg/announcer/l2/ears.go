package l2

import (
	"sync/atomic"
	"time"

	"golang.org/x/net/bpf"
)

const (
	// deafAfter is how long nothing that is sent to all may arrive before a
	// link counts as deaf. In a network that is alive somebody asks for
	// something by broadcast much more often.
	deafAfter = 30 * time.Minute

	// listenEvery is how exactly that is known.
	listenEvery = time.Minute
)

// ears find out whether a link receives what is sent to all. Port security, a
// hypervisor that filters, or a Wi-Fi that answers in the name of its stations
// may keep requests from a node that does everything right. The loop owns them.
type ears struct {
	counter counter       // nil: they are closed
	heard   uint64        // broadcasts since the link is used
	passed  atomic.Uint64 // those of them that a reader has seen
	last    time.Time
	checkAt time.Time
	deaf    bool
}

// listen looks whether the link hears anything while it is answered on by ARP,
// and returns when to look again, zero for never.
func (s *Speaker) listen(now time.Time, l *link) time.Time {
	e := &l.ears
	if !l.Up || !l.arp.open() {
		e.close()
		return time.Time{}
	}
	if now.Before(e.checkAt) {
		return e.checkAt
	}
	e.checkAt = now.Add(listenEvery)
	if e.counter == nil {
		s.openEars(now, l)
	}
	e.count(now)
	switch deaf := now.Sub(e.last) >= deafAfter; {
	case deaf && !e.deaf:
		e.deaf = true
		s.log.Warn("link receives no broadcast, so requests may not arrive: port security, or a filter of the hypervisor or the Wi-Fi?",
			"link", l.Name, "since", e.last)
	case !deaf && e.deaf:
		e.deaf = false
		s.log.Info("link receives broadcasts again", "link", l.Name)
	}
	return e.checkAt
}

// openEars begins to listen. A link that cannot be listened to is used without:
// that is tried again at the next look.
func (s *Speaker) openEars(now time.Time, l *link) {
	f, err := bpf.Assemble(hearing(l.mac))
	if err == nil {
		l.ears.counter, err = s.sockets.counter(l.Link, etherTypeARP, f)
	}
	if err != nil {
		l.errors++
		s.log.Debug("cannot listen for broadcasts", "link", l.Name, "err", err)
	}
	l.ears.last = now
}

// count fetches what has been heard.
func (e *ears) count(now time.Time) {
	if e.counter == nil {
		e.last = now // it is not known that there was nothing
		return
	}
	if n := e.counter.count(); n > 0 {
		e.heard += n
		e.last = now
	}
}

// filtered returns how many broadcasts woke no reader, because a filter in the
// kernel saw that they were about no address of ours.
func (e *ears) filtered() uint64 {
	return e.heard - min(e.heard, e.passed.Load())
}

// close ends listening. What a link hears later says nothing about before.
func (e *ears) close() {
	if e.counter != nil {
		e.counter.close()
		e.counter = nil
	}
	e.checkAt, e.deaf = time.Time{}, false
}

// hearing is a filter for broadcasts of others.
func hearing(own mac) []bpf.Instruction {
	out := dropUnless(bpf.LoadExtension{Num: bpf.ExtType}, toAll)
	out = append(out, dropFrom(own)...)
	return append(out, bpf.RetConstant{Val: 1})
}
