package membership

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/election"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

const (
	// maxMembers bounds what peers can make us store.
	maxMembers = 10_000

	// leftFor is how long who has said good-bye is not joined again. It still
	// answers while it leaves; a process that follows it joins by itself.
	leftFor = 5 * time.Second

	// calmAfter is for how long nobody must have come before all are known.
	calmAfter = 3 * time.Second

	// ownReturnEvery: everybody who took this announcer for dead says so when
	// it is back. Within this time they speak of the same return.
	ownReturnEvery = time.Second
)

// view is what this announcer says of itself and knows of the others. Its
// lock is the innermost: memberlist's callbacks take it while they hold
// memberlist's own, so nothing is called while it is held.
type view struct {
	name string

	mu       sync.Mutex
	self     metadata
	own      table // seq 0: none told yet
	live     map[string]peer
	gone     map[string]departure
	shelf    shelf
	debts    map[string]debt
	accused  map[string]accusation
	returns  int
	lastBack time.Time // when this announcer was last told that it had returned

	lastJoin time.Time // when a member last came; at first, when this one did

	// preceded: a member was established when this process first saw it.
	preceded bool

	fresh time.Duration // freshness of the settings
}

// peer is a live member.
type peer struct {
	node memberlist.Node
	metadata
	answered time.Time // when it last answered a ping of this announcer
	doubt    *doubt    // nil: nobody says that it is dead
}

// debt is what one member is still to be told.
type debt struct {
	table    bool // it has asked for our links
	returned bool // it was taken for dead here
}

// letter is a message for one member.
type letter struct {
	to      memberlist.Node
	message message
}

// newView makes a view in which this announcer is alone and passive.
func newView(name string) *view {
	var life [8]byte
	rand.Read(life[:]) // never fails
	return &view{
		name:    name,
		self:    metadata{passive: true, rules: election.Rules, life: binary.BigEndian.Uint64(life[:]), seq: 1, second: true},
		live:    map[string]peer{},
		gone:    map[string]departure{},
		shelf:   shelf{tables: map[string]table{}},
		debts:   map[string]debt{},
		accused: map[string]accusation{},

		lastJoin: time.Now(),
	}
}

// refuse returns why a live node is not to become, or stay, a member. If that
// is because its life has ended here, it is to be told.
func (v *view) refuse(n *memberlist.Node, now time.Time) error {
	if n.Name == v.name {
		return nil // memberlist must see this, to refute it
	}
	if n.Name == "" || len(n.Name) > maxName {
		return fmt.Errorf("name of %d bytes: %w", len(n.Name), errGarbled)
	}
	d, err := decodeMetadata(n.Meta)
	if err != nil {
		return fmt.Errorf("metadata: %w", err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	before, known := v.gone[n.Name]
	if known && before.left && before.life == d.life {
		return errors.New("it has left") // old gossip that somebody else still has
	}
	if known && before.ends(d) {
		v.accuse(n, before, now)
		return errDied
	}
	if _, known := v.live[n.Name]; !known && len(v.live) >= maxMembers {
		return fmt.Errorf("more than %d members: %w", maxMembers, errGarbled)
	}
	return nil
}

// join takes in a new member. It reports whether that is a process that had
// been taken for dead.
func (v *view) join(n *memberlist.Node) (returned bool) {
	d, err := decodeMetadata(n.Meta)
	if err != nil || n.Name == v.name {
		return false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	before, known := v.gone[n.Name]
	known = known && before.life == d.life
	returned = known && !before.left
	delete(v.gone, n.Name)
	delete(v.accused, n.Name)
	v.live[n.Name] = peer{node: *n, metadata: d}
	v.lastJoin = time.Now()
	v.preceded = v.preceded || d.established && !known
	if returned {
		v.returns++
	}
	if returned && !d.second {
		v.owe(n.Name, debt{returned: true}) // it knows of no counter to raise
	}
	return returned
}

// update takes over what a live member says of itself by gossip. It reports
// whether that changed anything.
func (v *view) update(n *memberlist.Node) bool {
	d, err := decodeMetadata(n.Meta)
	v.mu.Lock()
	defer v.mu.Unlock()
	p, ok := v.live[n.Name]
	if err != nil || !ok {
		return false
	}
	p.node = *n
	v.live[n.Name] = p
	if d.life == p.life {
		return v.hearLocked(n.Name, d)
	}
	v.live[n.Name] = peer{node: *n, metadata: d} // another process, restarted too quickly to be missed
	return true
}

// hear takes over what a live member told directly. It reports whether that
// changed anything.
func (v *view) hear(name string, d metadata) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if gone, ok := v.gone[name]; ok && d.leaving && gone.life == d.life {
		gone.left = true // its good-bye was overtaken
		v.gone[name] = gone
	}
	return v.hearLocked(name, d)
}

// hearLocked lets the newest metadata of a process win: gossip and direct
// messages overtake each other.
func (v *view) hearLocked(name string, d metadata) bool {
	p, ok := v.live[name]
	if !ok || p.life != d.life || p.seq >= d.seq {
		return false
	}
	p.metadata = d
	v.live[name] = p
	return true
}

// leftOrLost removes a member. It reports whether it was there and had said
// good-bye. cutOff: this announcer hears nobody, or has only begun to hear others.
func (v *view) leftOrLost(name string, now time.Time, cutOff bool) (was, left bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	p, ok := v.live[name]
	if !ok {
		return false, false
	}
	v.lose(name, p, now, cutOff)
	return true, p.leaving
}

// lose removes a live member. The mutex is held.
func (v *view) lose(name string, p peer, now time.Time, cutOff bool) {
	delete(v.live, name)
	delete(v.debts, name)
	v.shelf.drop(name)
	ours := cutOff || p.doubt != nil && p.doubt.answered
	v.gone[name] = departure{life: p.life, counter: p.counter, left: p.leaving, at: now, ours: ours}
	v.blame(now)
	if len(v.gone) > maxMembers {
		v.forgetOldest()
	}
}

func (v *view) forgetOldest() {
	oldest := ""
	for name, d := range v.gone {
		if oldest == "" || d.at.Before(v.gone[oldest].at) {
			oldest = name
		}
	}
	delete(v.gone, oldest)
	delete(v.accused, oldest)
}

// put takes in a table. It reports whether members show it.
func (v *view) put(t table, now time.Time) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if t.name == v.name {
		return false
	}
	p := v.live[t.name]
	t.heard = now
	return v.shelf.put(t, p.life) && t.life == p.life
}

// asked notes that a member wants our links. It reports whether it gets them.
func (v *view) asked(name string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, ok := v.live[name]; !ok || v.own.seq == 0 {
		return false
	}
	v.owe(name, debt{table: true})
	return true
}

func (v *view) owe(name string, d debt) {
	old := v.debts[name]
	v.debts[name] = debt{table: old.table || d.table, returned: old.returned || d.returned}
}

// letters returns what is owed, and owes it no more but to the accused.
func (v *view) letters(now time.Time) []letter {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := v.accusations(now)
	for name, d := range v.debts {
		p := v.live[name]
		if d.returned {
			out = append(out, letter{p.node, message{kind: kindReturned, life: p.life}})
		}
		if d.table {
			out = append(out, letter{p.node, message{kind: kindTable, table: v.own}})
		}
	}
	clear(v.debts)
	return out
}

// wanting returns up to so many members that have newer links than we know.
func (v *view) wanting(most int) []memberlist.Node {
	v.mu.Lock()
	defer v.mu.Unlock()
	var out []memberlist.Node
	for name, p := range v.live {
		if len(out) == most {
			break // by the order of a map: others have their turn the next time
		}
		t, ok := v.shelf.get(name, p.life)
		if !p.leaving && p.linksSeq > 0 && (!ok || t.seq < p.linksSeq) {
			out = append(out, p.node)
		}
	}
	return out
}

// sweep forgets tables of members that have not come.
func (v *view) sweep(now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.shelf.sweep(now, func(name string) bool {
		_, ok := v.live[name]
		return ok
	})
}

// nodes returns the other live members.
func (v *view) nodes() []memberlist.Node {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := make([]memberlist.Node, 0, len(v.live))
	for _, p := range v.live {
		out = append(out, p.node)
	}
	return out
}

// state returns the tables of all live members, this one included.
func (v *view) state() []table {
	v.mu.Lock()
	defer v.mu.Unlock()
	var out []table
	if v.own.seq > 0 {
		out = append(out, v.own)
	}
	for name, p := range v.live {
		if t, ok := v.shelf.get(name, p.life); ok {
			out = append(out, t)
		}
	}
	return out
}

// has reports whether a member is live.
func (v *view) has(name string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	_, ok := v.live[name]
	return ok
}

// absent returns the peers that are no live members and did not just leave, by name.
func (v *view) absent(peers map[string]netip.Addr, now time.Time) []absentee {
	v.mu.Lock()
	defer v.mu.Unlock()
	var out []absentee
	for name, address := range peers {
		_, live := v.live[name]
		before := v.gone[name]
		left := before.left && now.Sub(before.at) < leftFor
		if !live && !left && name != v.name && usable(address) {
			out = append(out, absentee{name, address.Unmap()})
		}
	}
	slices.SortFunc(out, func(a, b absentee) int { return cmp.Compare(a.name, b.name) })
	return out
}

// members returns what Members shows. Who has said good-bye is not shown any more.
func (v *view) members() []plan.Member {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := make([]plan.Member, 0, len(v.live)+1)
	out = append(out, v.self.member(v.name, v.own.links))
	for name, p := range v.live {
		if p.leaving {
			continue
		}
		t, ok := v.shelf.get(name, p.life)
		if !ok {
			t.links = nil
		}
		out = append(out, p.member(name, t.links))
	}
	slices.SortFunc(out, func(a, b plan.Member) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// staying returns how many other members have not said good-bye.
func (v *view) staying() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := 0
	for _, p := range v.live {
		if !p.leaving {
			n++
		}
	}
	return n
}

// returned returns how often members came back.
func (v *view) returned() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.returns
}
