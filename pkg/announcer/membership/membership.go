// Package membership knows which announcers are alive: memberlist behind a
// narrow door.
//
// What a member says of itself travels in three ways. Its metadata (a few
// bytes: rules, passive, draining, how fit it is) is gossiped by memberlist. Its table of
// links is sent to each member when it changes, rides on the periodic full
// exchange of state, and is asked for by whoever sees from the metadata that
// its own copy is old. And what must be known within milliseconds, a planned
// departure, is also told to each member directly.
package membership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

const (
	leaveAtMost = 3 * time.Second // if the context allows more
	lookEvery   = 20 * time.Millisecond
	goodByeLead = 20 * time.Millisecond

	// quietAtLeast is how long nothing authentic may come before that is a
	// sign of isolation. Where probes are rarer it is two and a half of them.
	quietAtLeast = 500 * time.Millisecond

	// gatherFor is how long after an isolation not all members may be back.
	gatherFor = 2 * time.Second
)

// Options is what a membership needs. All fields but Keys, Died, Kick and Log are required.
type Options struct {
	Name      string     // the Node's name
	Address   netip.Addr // the Node's gossip address, bound and advertised
	Port      int
	Label     string           // separates clusters: the UID of the kube-system namespace
	Detection config.Detection // failure detection times

	// Keys are shared secrets of any length, up to 8: all of them are accepted,
	// the first signs as soon as every live member says that it holds it. Nil
	// is clear text, for the life of the membership.
	Keys [][]byte

	// Peers returns the gossip addresses of all Nodes by name, to join and
	// rejoin. An error leaves the membership as it is.
	Peers func() (map[string]netip.Addr, error)

	// Died is called when others turn out to have taken this announcer for dead.
	// It must not block.
	Died func()

	Kick func() // called after every change that Members or Isolated show; must not block
	Log  *slog.Logger
}

// State is what this announcer says of itself to the others.
type State struct {
	Passive  bool
	Draining bool
	plan.Standing

	// Established: it is settled, and has taken part for the time of settling.
	// Whoever joins from now on is no founder.
	Established bool

	Config string // hash of the configuration in force, up to 16 letters and digits

	// Links are this announcer's links; nil leaves what was told before. Of
	// more than 64, those are told that hold the Node's address, then those
	// with a default route, then those with the lowest index; of more than 32
	// prefixes of a link, the widest. Members shows what was told.
	Links []plan.Link
}

// Stats are counts since the start, and gauges where it says so.
type Stats struct {
	Members      int // gauge: live announcers, this one included
	Joins        int // attempts to join a member that had answered a ping
	JoinFailures int
	Rejected     int // packets and streams refused: wrong key, wrong label or unreadable
	Garbled      int // authentic metadata, messages and tables refused: unreadable or out of bounds
	Updates      int // metadata updates handed to the gossip, repetitions included
	HealthScore  int // gauge: memberlist's view of this process, 0 is healthy
}

// Members is this announcer's view of the live announcers. Its methods may be
// called from any goroutine.
type Members struct {
	o    Options
	list *memberlist.Memberlist
	view *view
	keys *keys
	door *guard
	log  *bridge

	changed chan struct{} // capacity 1: there is something to publish
	owing   chan struct{} // capacity 1: there is something to tell one member

	counts    counts
	stop      context.CancelFunc // ends the publisher and what works for it
	published chan struct{}      // closed when the publisher has ended
	departing chan struct{}      // capacity 1: memberlist's Leave has begun
	tasks     tasks              // what may outlive the call that started it

	quietAfter time.Duration // without an authentic packet: isolated
	isolated   atomic.Bool   // as it was last looked at
	born       time.Time
	gathering  atomic.Int64 // until when, since born, members come back after an isolation

	leaving sync.Once
	left    error
}

// New binds the gossip port and starts passive. The caller runs Run and ends with Leave.
func New(o Options) (*Members, error) {
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("membership options: %w", err)
	}
	c, err := settings(o)
	if err != nil {
		return nil, fmt.Errorf("membership options: %w", err)
	}
	return create(o, c)
}

// create is New with settings that the caller has made.
func create(o Options, c *memberlist.Config) (*Members, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Kick == nil {
		o.Kick = func() {}
	}
	if o.Died == nil {
		o.Died = func() {}
	}
	keys, err := newKeys(o.Keys)
	if err != nil {
		return nil, fmt.Errorf("membership options: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	m := &Members{
		o: o, view: newView(o.Name), keys: keys, log: newBridge(o.Log), stop: stop,
		changed: make(chan struct{}, 1), owing: make(chan struct{}, 1),
		published: make(chan struct{}), departing: make(chan struct{}, 1), born: time.Now(),
	}
	if err := m.open(c); err != nil {
		stop()
		return nil, fmt.Errorf("open gossip on %s: %w", netip.AddrPortFrom(o.Address, uint16(o.Port)), err)
	}
	go m.publisher(ctx)
	return m, nil
}

// open opens the port and puts memberlist behind the door.
func (m *Members) open(c *memberlist.Config) error {
	if m.keys.ring != nil {
		m.view.hold(m.keys.holds())
		c.Keyring = m.keys.ring
	}
	d := delegate{m}
	c.Delegate, c.Events, c.Alive, c.Ping = d, d, d, d
	m.view.fresh = freshness(c)
	c.Logger = m.log.logger()
	transport, err := memberlist.NewNetTransport(&memberlist.NetTransportConfig{
		BindAddrs: []string{c.BindAddr}, BindPort: c.BindPort, Logger: c.Logger,
	})
	if err != nil {
		return err
	}
	m.door = newGuard(transport, m.keys, c.Label, m.refused)
	m.quietAfter = max(quietAtLeast, c.ProbeInterval*5/2)
	c.Transport = m.door
	if m.list, err = memberlist.Create(c); err != nil {
		return errors.Join(err, m.door.Shutdown())
	}
	return nil
}

// check reports every option that cannot be used.
func (o Options) check() error {
	var errs []error
	fault := func(bad bool, text string) {
		if bad {
			errs = append(errs, errors.New(text))
		}
	}
	fault(o.Name == "" || len(o.Name) > maxName, "name must have 1 to 253 bytes")
	fault(!usable(o.Address), "address must be a specified unicast address without a zone")
	fault(o.Port < 1 || o.Port > 65535, "port must be 1 to 65535")
	fault(o.Label == "" || len(o.Label) > memberlist.LabelMaxSize, "label must have 1 to 255 bytes")
	fault(o.Peers == nil, "peers are missing")
	return errors.Join(errs...)
}

// usable reports whether gossip can be sent to an address.
func usable(a netip.Addr) bool {
	return a.IsValid() && a.Zone() == "" && !a.IsUnspecified() && !a.IsMulticast()
}

// Publish tells the others this announcer's state, if it changed. It does not block.
func (m *Members) Publish(s State) {
	if m.view.publish(s) {
		signal(m.changed)
		m.o.Kick()
	}
}

// Members returns the live announcers, this one included, sorted by name. The
// caller must not change what the Links of a member hold.
func (m *Members) Members() []plan.Member { return m.view.members() }

// Returns counts how often a member came back that had been alive meanwhile:
// it was taken for dead here and is the same process as before. This announcer
// counts as such a member too, when others took it for dead.
func (m *Members) Returns() int { return m.view.returned() }

// Founder tells whether no member that this process has met was established
// when it met it: there was no cluster before it.
func (m *Members) Founder() bool { return m.view.founder() }

// Isolated tells whether nothing authentic has come from any member for half
// a second (two and a half probes where those are rarer), though there are
// others, or there were until they were lost. It lasts for two seconds longer
// than that: members come back one after the other, and until then nobody
// knows who is missing. Members that are lost meanwhile are not to blame.
func (m *Members) Isolated() bool {
	now := time.Now()
	return m.silent(now) || now.Sub(m.born) < time.Duration(m.gathering.Load())
}

// silent tells whether nobody is heard.
func (m *Members) silent(now time.Time) bool {
	return m.view.accompanied() && m.door.silence(now) >= m.quietAfter
}

// SetKeys replaces the gossip keys, as Options.Keys gives them. Keys that are
// not among them any more are accepted for another ten minutes.
func (m *Members) SetKeys(secrets [][]byte) error {
	if m.keys.ring == nil {
		return errors.New("this membership is in clear text")
	}
	next, err := derive(secrets)
	if err != nil {
		return err
	}
	if err := m.keys.set(next, time.Now()); err != nil {
		return err
	}
	if m.view.hold(m.keys.holds()) {
		m.o.Log.Info("gossip keys changed", "keys", len(next))
		signal(m.changed)
	}
	return nil
}

// refused counts a packet that was not let in.
func (m *Members) refused(from netip.Addr, cause string) {
	m.counts.refused.Add(1)
	m.log.refused(from, m.view.nameAt(from), cause)
}

// Stats returns the current counts.
func (m *Members) Stats() Stats {
	return Stats{
		Members:      m.view.staying() + 1,
		Joins:        int(m.counts.joins.Load()),
		JoinFailures: int(m.counts.joinFailures.Load()),
		Rejected:     m.log.rejections() + int(m.counts.refused.Load()),
		Garbled:      int(m.counts.garbled.Load()),
		Updates:      int(m.counts.updates.Load()),
		HealthScore:  m.list.GetHealthScore(),
	}
}

// Leave tells the others that this announcer goes, and closes the port. It
// returns when they know or ctx ends. Only the first call does something; any
// other waits for it and returns the same. It needs no Run.
func (m *Members) Leave(ctx context.Context) error {
	m.leaving.Do(func() { m.left = m.leave(ctx) })
	return m.left
}

func (m *Members) leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leaveAtMost)
	defer cancel()

	// An update that meets memberlist's Leave could outdate its message, and
	// nobody would learn of it: the publisher ends first.
	m.stop()
	<-m.published

	// memberlist handles what has queued up last in, first out: the good-bye
	// gets a lead over its own message, which looks like that of a death.
	m.view.leave()
	m.tellState()
	time.Sleep(goodByeLead)
	var errs []error
	if err := m.broadcastDeparture(ctx); err != nil {
		errs = append(errs, fmt.Errorf("broadcast departure: %w", err))
	}
	m.tellState() // again: the first may have been lost
	if err := m.list.Shutdown(); err != nil {
		errs = append(errs, fmt.Errorf("close gossip: %w", err))
	}
	m.wait(ctx)
	return errors.Join(errs...)
}

// broadcastDeparture returns when the others know, when there are none any
// more, or when ctx ends.
func (m *Members) broadcastDeparture(ctx context.Context) error {
	deadline, _ := ctx.Deadline()
	atMost := max(time.Until(deadline), time.Millisecond)
	done := make(chan error, 1)
	go func() { done <- m.list.Leave(atMost) }()

	// memberlist panics if it is shut down before its Leave has begun.
	select {
	case <-m.departing:
	case err := <-done:
		return err
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			// When all leave at once, nobody is left to receive a broadcast,
			// and memberlist waits in vain.
			if m.view.staying() == 0 {
				return nil
			}
		}
	}
}

// wait returns when nothing works in the background any more, or ctx ends. An
// exchange that hangs then ends by its own time-out, and does no harm.
func (m *Members) wait(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		m.tasks.close()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}
