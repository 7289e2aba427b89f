package membership

import (
	"errors"
	"time"

	"github.com/hashicorp/memberlist"
)

// A life ends when a member is taken for dead, and does not come back: whoever
// saw the end refuses it, and tells the process, until it has begun another
// one by raising its counter. So a process that was only stalled, or cut off,
// learns that its addresses have gone to others meanwhile, and settles like one
// that has crashed.

const (
	// accuseEvery is how often who is refused is told why. A packet may be lost.
	accuseEvery = 100 * time.Millisecond

	// accuseFor is how long that goes on after it was last heard of.
	accuseFor = 10 * time.Second

	// together is within what time losses are one event: if more than half of
	// the members are lost, it is this announcer that was cut off.
	together = time.Second
)

// errDied refuses a life that has ended here.
var errDied = errors.New("it was taken for dead, and has not begun another life")

// accusation is what a process that was taken for dead is told.
type accusation struct {
	letter
	heard time.Time // when it was last refused
	told  time.Time
}

// departure remembers a process that went, to know it if it comes back.
type departure struct {
	life, counter uint64
	left          bool // it said good-bye
	at            time.Time

	// ours: it was this announcer that was cut off, or believed what was not
	// so, and does not say that the other died.
	ours bool
}

// ends tells whether a life had come to its end with a departure. Members of
// the first release cannot begin another life, so theirs go on.
func (d departure) ends(m metadata) bool {
	return !d.left && !d.ours && m.second && m.life == d.life && m.counter <= d.counter
}

// accuse notes that a process is to be told that its life has ended.
func (v *view) accuse(n *memberlist.Node, d departure, now time.Time) {
	v.accused[n.Name] = accusation{
		letter: letter{*n, message{kind: kindReturned, life: d.life, counted: true, counter: d.counter}},
		heard:  now,
		told:   v.accused[n.Name].told,
	}
}

// accusations returns what is to be told now.
func (v *view) accusations(now time.Time) []letter {
	var out []letter
	for name, a := range v.accused {
		switch {
		case now.Sub(a.heard) > accuseFor:
			delete(v.accused, name)
		case now.Sub(a.told) >= accuseEvery:
			a.told = now
			v.accused[name] = a
			out = append(out, a.letter)
		}
	}
	return out
}

// blame takes the blame for what was lost within the last moment, if that is
// more than half of all members.
func (v *view) blame(now time.Time) {
	recent := 0
	for _, d := range v.gone {
		if d.lostWithin(now) {
			recent++
		}
	}
	if 2*recent <= recent+len(v.live)+1 {
		return
	}
	for name, d := range v.gone {
		if d.lostWithin(now) {
			d.ours = true
			v.gone[name] = d
		}
	}
}

func (d departure) lostWithin(now time.Time) bool { return !d.left && now.Sub(d.at) <= together }

// wasGone takes in that another member has taken this announcer for dead. It
// reports whether that is news: then another life has begun. Members of the
// first release tell no counter, and each of them tells it.
func (v *view) wasGone(m message, now time.Time) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case m.life != v.self.life:
		return false
	case m.counted && m.counter < v.self.counter:
		return false
	case !m.counted && now.Sub(v.lastBack) < ownReturnEvery:
		return false
	}
	v.lastBack = now
	v.returns++
	v.self.counter = max(v.self.counter, m.counter) + 1
	v.self.seq++
	return true
}

// founder tells whether no member that this process has met had been
// established when it met it.
func (v *view) founder() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return !v.preceded
}
