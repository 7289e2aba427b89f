package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/membership"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/record"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/source"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/status"
)

const (
	// gossipSecret holds the key of the gossip that is to sign under gossipKey;
	// what else is in it is accepted too. Changing either name is an API change.
	gossipSecret = "ccm-baremetal-gossip"
	gossipKey    = "key"

	joinRetryFirst = 200 * time.Millisecond
	joinRetryLast  = 5 * time.Second
	askWithin      = 10 * time.Second // of the API server
	leaveWithin    = 3 * time.Second

	// gather is how long the members are not believed after the start. The
	// others become known one after the other, and whoever decides in between
	// claims what one of the rest announces.
	gather = 300 * time.Millisecond
)

var (
	errStarting  = errors.New("the gossip to start")
	errGathering = errors.New("the other announcers to answer")
)

// gossipOptions is what a gossip needs. All fields but secret are required.
type gossipOptions struct {
	node   string
	api    *source.API
	world  *source.World
	secret *source.Secret // with the keys; nil: clear text
	record *record.Record
	label  string        // what the cluster's label ends with
	rekey  chan struct{} // capacity 1: the Secret has changed
	kick   func()
	log    *slog.Logger
}

// gossip is the membership together with what it has to know before it can
// start: the configuration, this node's address, the cluster's identity and
// the keys. It waits for them as long as it takes. Until then the members are
// just one more thing that is not known.
type gossip struct {
	o gossipOptions

	mu      sync.Mutex
	members *membership.Members // nil until it has started
	waiting error               // for what the loop has to wait; nil: for nothing
}

func newGossip(o gossipOptions) *gossip {
	return &gossip{o: o, waiting: errStarting}
}

// Run gossips until ctx ends. It does not leave.
func (g *gossip) Run(ctx context.Context) error {
	retry := joinRetryFirst
	for {
		o, err := g.remembered()
		if err == nil {
			var members *membership.Members
			if members, err = g.start(ctx, o); err == nil {
				return g.work(ctx, members)
			}
			retry = min(2*retry, joinRetryLast)
		}
		g.set(nil, err)
		select {
		case <-ctx.Done():
			return nil
		case <-g.o.rekey:
		case <-time.After(retry):
		}
	}
}

// work keeps the members together, and their keys up to date, until ctx ends.
func (g *gossip) work(ctx context.Context, members *membership.Members) error {
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.Go(func() error { return members.Run(ctx) })
	tasks.Go(func() error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-g.o.rekey:
				g.changeKeys(members)
			}
		}
	})
	return tasks.Wait()
}

// changeKeys takes over the keys of the Secret. Those in force stay if they
// are of no use.
func (g *gossip) changeKeys(members *membership.Members) {
	keys, err := g.keys()
	if err == nil {
		err = members.SetKeys(keys)
	}
	if err != nil {
		g.o.log.Warn("gossip keys refused, keeping those in force", "err", err)
	}
}

// start asks the API server for the rest of what has to be known, and opens
// the gossip.
func (g *gossip) start(ctx context.Context, o membership.Options) (*membership.Members, error) {
	if err := g.ask(ctx, &o); err != nil {
		return nil, err
	}
	members, err := membership.New(o)
	if err != nil {
		return nil, fmt.Errorf("the gossip to start: %w", err)
	}
	g.set(members, errGathering)
	time.AfterFunc(gather, func() {
		g.set(members, nil)
		g.o.kick()
	})
	g.o.log.Info("gossip started", "address", o.Address, "port", o.Port, "cluster", o.Label, "keys", len(o.Keys))
	return members, nil
}

func (g *gossip) set(members *membership.Members, waiting error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.members, g.waiting = members, waiting
}

// remembered returns what the world knows for the membership. An error says
// what is waited for.
func (g *gossip) remembered() (membership.Options, error) {
	c, err := g.o.world.Config()
	if err != nil {
		return membership.Options{}, errStarting // the world says itself what it waits for
	}
	address, err := g.o.world.GossipAddress()
	if err != nil {
		return membership.Options{}, fmt.Errorf("an address for the gossip: %w", err)
	}
	return membership.Options{
		Name:      g.o.node,
		Address:   address,
		Port:      c.Membership.Port,
		Detection: c.Membership.Detection,
		Peers:     g.o.world.Peers,
		Died:      g.o.record.Died,
		Kick:      g.o.kick,
		Log:       g.o.log,
	}, nil
}

// ask adds what only the API server knows.
func (g *gossip) ask(ctx context.Context, o *membership.Options) (err error) {
	if g.o.secret != nil {
		if o.Keys, err = g.keys(); err != nil {
			return fmt.Errorf("the gossip key: %w", err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	if o.Label, err = g.cluster(ctx); err != nil {
		return fmt.Errorf("the identity of the cluster: %w", err)
	}
	return nil
}

// cluster returns what keeps the gossip of two clusters in one network apart.
func (g *gossip) cluster(ctx context.Context) (string, error) {
	namespace, err := g.o.api.Namespace(ctx, metav1.NamespaceSystem)
	if err != nil {
		return "", fmt.Errorf("get namespace %s: %w", metav1.NamespaceSystem, err)
	}
	return string(namespace.UID) + g.o.label, nil
}

// keys returns the gossip keys: the one that is to sign, and after it all
// others that are to be accepted, by name.
func (g *gossip) keys() ([][]byte, error) {
	data, err := g.o.secret.Data()
	if err != nil {
		return nil, err
	}
	if len(data[gossipKey]) == 0 {
		return nil, fmt.Errorf("the %s has no %s", g.o.secret, gossipKey)
	}
	keys := [][]byte{data[gossipKey]}
	for _, name := range slices.Sorted(maps.Keys(data)) {
		if name != gossipKey {
			keys = append(keys, data[name])
		}
	}
	return keys, nil
}

// started returns the membership, nil before it has started, and what the loop
// has to wait for.
func (g *gossip) started() (*membership.Members, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.members, g.waiting
}

// Members returns the live announcers, or an error that says what is waited for.
func (g *gossip) Members() ([]plan.Member, error) {
	m, err := g.started()
	if err != nil {
		return nil, err
	}
	return m.Members(), nil
}

// Returns counts how often a member came back that had been alive meanwhile.
func (g *gossip) Returns() int {
	if m, _ := g.started(); m != nil {
		return m.Returns()
	}
	return 0
}

// Isolated tells whether nothing comes from any of them.
func (g *gossip) Isolated() bool {
	m, _ := g.started()
	return m != nil && m.Isolated()
}

// Settling tells whether others are to be preferred to this node.
func (g *gossip) Settling() bool {
	m, _ := g.started()
	c, err := g.o.world.Config()
	return m != nil && err == nil && g.o.record.Settling(c.Membership.Settle, m.Founder())
}

// Publish tells the others this announcer's state. Without gossip there are no
// others. Whoever is passive no more takes part from then on.
func (g *gossip) Publish(s announcer.State) {
	m, _ := g.started()
	c, err := g.o.world.Config()
	if m == nil || err != nil {
		return
	}
	if !s.Passive {
		g.o.record.Join(c.Membership.Settle, !s.Settling)
	}
	m.Publish(membership.State{
		Passive: s.Passive, Draining: s.Draining, Standing: s.Standing,
		Established: g.o.record.Established(), Config: s.Config, Links: s.Links,
	})
}

// leave tells the others that this announcer goes. If that does not work they
// will notice.
func (g *gossip) leave() {
	g.o.record.Stopped()
	m, _ := g.started()
	if m == nil {
		return // nobody knows of us
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveWithin)
	defer cancel()
	if err := m.Leave(ctx); err != nil {
		g.o.log.Warn("left the members without a farewell", "err", err)
	}
}

func (g *gossip) stats() status.Gossip {
	m, _ := g.started()
	if m == nil {
		return status.Gossip{}
	}
	s := m.Stats()
	return status.Gossip{
		Joins: s.Joins, JoinFailures: s.JoinFailures, Rejected: s.Rejected, Garbled: s.Garbled,
		Updates: s.Updates, HealthScore: s.HealthScore,
	}
}
