package l2

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = 5 * time.Second

	// healthy is how long a socket must have worked to be opened again
	// without delay when it breaks.
	healthy = 10 * time.Second
)

// backoff puts attempts off, longer each time.
type backoff struct {
	wait time.Duration // what to wait after the next failure
	at   time.Time     // when to try again
}

func (b *backoff) postpone(now time.Time) {
	b.at = now.Add(b.wait)
	b.wait = min(max(2*b.wait, firstRetry), lastRetry)
}

// responder is one protocol on one link: its socket, and the claims that are
// answered on it. The loop owns it.
type responder struct {
	protocol protocol
	stats    *familyStats
	claims   map[netip.Addr]*claim
	changed  bool // the filter and the table have to follow
	fresh    bool // some claims have not begun

	reader   *reader // nil: not open
	groups   *groups // of the socket
	send     func([]byte) error
	prefixes []netip.Prefix // that the filter lets through
	table    atomic.Pointer[table]

	broken   atomic.Bool // the reader met an error
	reopen   bool        // the socket must be replaced
	opened   time.Time
	retry    backoff
	reported bool // that it does not open
	errors   uint64
	overflow uint64

	joining      bool // the groups have to follow
	joinRetry    backoff
	joinReported bool
}

func newResponder(p protocol, s *familyStats) *responder {
	return &responder{protocol: p, stats: s, claims: map[netip.Addr]*claim{}}
}

// open tells whether anything can be answered.
func (r *responder) open() bool { return r.reader != nil }

// due tells whether it is time to open the socket, for the first time or anew.
func (r *responder) due(now time.Time) bool {
	return r.incomplete() && !now.Before(r.retry.at)
}

// incomplete tells whether the socket is missing or must be replaced.
func (r *responder) incomplete() bool { return len(r.claims) > 0 && (!r.open() || r.reopen) }

// joinDue tells whether it is time to join or leave groups.
func (r *responder) joinDue(now time.Time) bool {
	return r.open() && r.joining && !now.Before(r.joinRetry.at)
}

// wake returns when there is something to try again on a link that is up or
// not, zero for never.
func (r *responder) wake(up bool) time.Time {
	var out time.Time
	if up && r.incomplete() {
		out = r.retry.at
	}
	if r.open() && r.joining {
		out = earliest(out, r.joinRetry.at)
	}
	return out
}

// suspect notes that the socket may be dead: its link went away, or down and
// perhaps up again since.
func (r *responder) suspect(now time.Time) {
	r.errors++
	r.reopen = true
	if now.Sub(r.opened) >= healthy {
		r.retry = backoff{}
	}
	r.retry.postpone(now)
}

// start opens the socket, or replaces it: the new one is open before the old
// one is closed.
func (r *responder) start(l *link, s *Speaker) error {
	prefixes := r.cover()
	f, err := program(r.protocol, l.mac, prefixes)
	if err != nil {
		return err
	}
	c, err := s.sockets.packet(l.Link, r.protocol.etherType(), f)
	if err != nil {
		return fmt.Errorf("open %s socket on %s: %w", r.protocol.name(), l.Name, err)
	}
	g := newGroups(s.sockets, l.Link, c)
	err = g.set(r.wantedGroups()) // while the old one still has them
	r.joining = err != nil
	r.stop()
	r.groups = g
	r.prefixes = prefixes
	r.publish(l.mac, s.owns)
	r.broken.Store(false)
	r.reopen = false
	r.reader = &reader{
		protocol: r.protocol, conn: c, table: &r.table, stats: r.stats, passed: &l.ears.passed,
		quit: make(chan struct{}), done: make(chan struct{}),
		sightings: s.sightings, broken: &r.broken, wake: s.wake,
	}
	r.send = c.sender()
	go r.reader.run()
	return nil
}

// stop closes the socket, if it is open.
func (r *responder) stop() {
	if r.open() {
		r.count()
		r.reader.stop()
		r.groups.close()
		r.reader, r.groups = nil, nil
	}
}

// sync makes the filter and the table agree with the claims, the filter first:
// whatever the table knows must get through. A socket that takes no filter is
// replaced.
func (r *responder) sync(now time.Time, l *link, owns []mac) error {
	if !r.open() {
		return nil
	}
	r.changed, r.joining = false, true
	prefixes := r.cover()
	if !slices.Equal(prefixes, r.prefixes) {
		f, err := program(r.protocol, l.mac, prefixes)
		if err == nil {
			err = r.reader.conn.setFilter(f)
		}
		if err != nil {
			r.suspect(now)
			return fmt.Errorf("replace the %s filter on %s: %w", r.protocol.name(), l.Name, err)
		}
		r.prefixes = prefixes
	}
	r.publish(l.mac, owns)
	return nil
}

func (r *responder) cover() []netip.Prefix {
	return cover(slices.Collect(maps.Keys(r.claims)), maxPrefixes)
}

// join makes the groups agree with the claims.
func (r *responder) join(l *link) error {
	if err := r.groups.set(r.wantedGroups()); err != nil {
		return fmt.Errorf("on %s: %w", l.Name, err)
	}
	r.joining = false
	return nil
}

// wantedGroups derives the groups from the claims, sorted.
func (r *responder) wantedGroups() []netip.Addr {
	var out []netip.Addr
	for address := range r.claims {
		if group, ok := r.protocol.group(address); ok {
			out = append(out, group)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// publish gives the reader a new table.
func (r *responder) publish(own mac, owns []mac) {
	r.table.Store(&table{mac: own, owns: owns, claims: maps.Clone(r.claims)})
	r.changed = false
}

// launch begins the claims that have waited for the socket, in order.
func (r *responder) launch(now time.Time) {
	if !r.open() || !r.fresh {
		return
	}
	r.fresh = false
	for _, c := range r.sorted() {
		if !c.begun {
			c.begin(now)
		}
	}
}

// burst announces every claim like a new one.
func (r *responder) burst(now time.Time) {
	for _, c := range r.sorted() {
		c.burst(now)
	}
}

// sorted returns the claims by address.
func (r *responder) sorted() []*claim {
	return slices.SortedFunc(maps.Values(r.claims), func(a, b *claim) int { return a.address.Compare(b.address) })
}

// count fetches what the kernel counts for the socket.
func (r *responder) count() {
	if r.open() {
		r.overflow += r.reader.conn.overflow()
	}
}

// linkGone tells whether err means that the link is down or away. That is no
// news: whoever wants the link hears it from elsewhere.
func linkGone(err error) bool {
	return errors.Is(err, syscall.ENETDOWN) || errors.Is(err, syscall.ENODEV) || errors.Is(err, syscall.ENXIO)
}
