package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/membership"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/source"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/status"
)

const (
	// gossipSecret holds the key of the gossip under gossipKey. Changing
	// either is an API change.
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

// gossipOptions is what a gossip needs. All fields are required.
type gossipOptions struct {
	node      string
	api       *source.API
	namespace string // of the Secret
	insecure  bool   // clear text, no Secret
	world     *source.World
	kick      func()
	log       *slog.Logger
}

// gossip is the membership together with what it has to know before it can
// start: the configuration, this node's address, the cluster's identity and
// the key. It waits for them as long as it takes. Until then the members are
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
				return members.Run(ctx)
			}
			retry = min(2*retry, joinRetryLast)
		}
		g.set(nil, err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retry):
		}
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
	g.o.log.Info("gossip started", "address", o.Address, "port", o.Port, "cluster", o.Label, "encrypted", o.Key != nil)
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
		Kick:      g.o.kick,
		Log:       g.o.log,
	}, nil
}

// ask adds what only the API server knows.
func (g *gossip) ask(ctx context.Context, o *membership.Options) (err error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	if o.Label, err = g.cluster(ctx); err != nil {
		return fmt.Errorf("the identity of the cluster: %w", err)
	}
	if g.o.insecure {
		return nil
	}
	if o.Key, err = g.key(ctx); err != nil {
		return fmt.Errorf("the gossip key: %w", err)
	}
	return nil
}

// cluster returns what keeps the gossip of two clusters in one network apart.
func (g *gossip) cluster(ctx context.Context) (string, error) {
	namespace, err := g.o.api.Namespace(ctx, metav1.NamespaceSystem)
	if err != nil {
		return "", fmt.Errorf("get namespace %s: %w", metav1.NamespaceSystem, err)
	}
	return string(namespace.UID), nil
}

func (g *gossip) key(ctx context.Context) ([]byte, error) {
	secret, err := g.o.api.Secret(ctx, g.o.namespace, gossipSecret)
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("there is no Secret %s/%s yet, ccm-baremetal makes it", g.o.namespace, gossipSecret)
	case err != nil:
		return nil, fmt.Errorf("get secret %s/%s: %w", g.o.namespace, gossipSecret, err)
	case len(secret.Data[gossipKey]) == 0:
		return nil, fmt.Errorf("the Secret %s/%s has no %s", g.o.namespace, gossipSecret, gossipKey)
	}
	return secret.Data[gossipKey], nil
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

// Publish tells the others this announcer's state. Without gossip there are no others.
func (g *gossip) Publish(s announcer.State) {
	if m, _ := g.started(); m != nil {
		m.Publish(membership.State(s))
	}
}

// leave tells the others that this announcer goes. If that does not work they
// will notice.
func (g *gossip) leave() {
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
