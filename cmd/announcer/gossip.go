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
	"k8s.io/client-go/kubernetes"

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

	// meetWithin is how long an announcer that has just started looks for the
	// others before it believes that it is alone. Else it would claim, for a
	// moment, what others announce. Once it has met one of them, the rest
	// follow within meetSettle.
	meetWithin = 4 * time.Second
	meetSettle = 200 * time.Millisecond
)

var errMeeting = errors.New("another announcer to answer")

// gossipOptions is what a gossip needs. All fields are required.
type gossipOptions struct {
	node      string
	client    kubernetes.Interface
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
	trusted time.Time           // from when on the members are to be believed
	waiting error               // for what
}

func newGossip(o gossipOptions) *gossip {
	return &gossip{o: o, waiting: errors.New("the gossip to start")}
}

// Run gossips until ctx ends. It does not leave.
func (g *gossip) Run(ctx context.Context) error {
	retry := joinRetryFirst
	for {
		members, err := g.start(ctx)
		if err == nil {
			return members.Run(ctx)
		}
		g.mu.Lock()
		g.waiting = err
		g.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retry):
		}
		retry = min(2*retry, joinRetryLast)
	}
}

func (g *gossip) start(ctx context.Context) (*membership.Members, error) {
	o, err := g.options(ctx)
	if err != nil {
		return nil, err
	}
	members, err := membership.New(o)
	if err != nil {
		return nil, fmt.Errorf("the gossip to start: %w", err)
	}
	g.mu.Lock()
	g.members, g.trusted = members, time.Now().Add(meetWithin)
	g.mu.Unlock()
	g.o.log.Info("gossip started", "address", o.Address, "port", o.Port, "cluster", o.Label, "encrypted", o.Key != nil)
	g.o.kick()
	return members, nil
}

// options collects what the membership has to know. An error says what is
// waited for. The API server is asked last, when it can be of use.
func (g *gossip) options(ctx context.Context) (membership.Options, error) {
	c, err := g.o.world.Config()
	if err != nil {
		return membership.Options{}, err
	}
	o := membership.Options{
		Name:      g.o.node,
		Port:      c.Membership.Port,
		Detection: c.Membership.Detection,
		Peers:     g.o.world.Peers,
		Kick:      g.o.kick,
		Log:       g.o.log,
	}
	if o.Address, err = g.o.world.GossipAddress(); err != nil {
		return o, fmt.Errorf("an address for the gossip: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	if o.Label, err = g.cluster(ctx); err != nil {
		return o, fmt.Errorf("the identity of the cluster: %w", err)
	}
	if g.o.insecure {
		return o, nil
	}
	if o.Key, err = g.key(ctx); err != nil {
		return o, fmt.Errorf("the gossip key: %w", err)
	}
	return o, nil
}

// cluster returns what keeps the gossip of two clusters in one network apart.
func (g *gossip) cluster(ctx context.Context) (string, error) {
	namespace, err := g.o.client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("get namespace %s: %w", metav1.NamespaceSystem, err)
	}
	return string(namespace.UID), nil
}

func (g *gossip) key(ctx context.Context) ([]byte, error) {
	secret, err := g.o.client.CoreV1().Secrets(g.o.namespace).Get(ctx, gossipSecret, metav1.GetOptions{})
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

// started returns the membership, or what it waits for.
func (g *gossip) started() (*membership.Members, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.members == nil {
		return nil, g.waiting
	}
	return g.members, nil
}

// Members returns the live announcers, or an error that says what is waited for.
func (g *gossip) Members() ([]plan.Member, error) {
	m, err := g.started()
	if err != nil {
		return nil, err
	}
	list := m.Members()
	if g.meeting(len(list)) {
		return nil, errMeeting
	}
	return list, nil
}

// meeting tells whether the members still have to be met. Once they have been,
// it does not matter how many are left.
func (g *gossip) meeting(members int) bool {
	peers, err := g.o.world.Peers()
	alone := err == nil && len(peers) <= 1
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if settled := now.Add(meetSettle); members > 1 && settled.Before(g.trusted) {
		g.trusted = settled
		time.AfterFunc(meetSettle, g.o.kick)
	}
	if alone {
		g.trusted = now
	}
	return now.Before(g.trusted)
}

// Returns counts how often a member came back that had been alive meanwhile.
func (g *gossip) Returns() int {
	m, err := g.started()
	if err != nil {
		return 0
	}
	return m.Returns()
}

// Publish tells the others this announcer's state. Without gossip there are no others.
func (g *gossip) Publish(s announcer.State) {
	if m, err := g.started(); err == nil {
		m.Publish(membership.State(s))
	}
}

// leave tells the others that this announcer goes. If that does not work they
// will notice.
func (g *gossip) leave() {
	m, err := g.started()
	if err != nil {
		return // nobody knows of us
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveWithin)
	defer cancel()
	if err := m.Leave(ctx); err != nil {
		g.o.log.Warn("left the members without a farewell", "err", err)
	}
}

func (g *gossip) stats() status.Gossip {
	m, err := g.started()
	if err != nil {
		return status.Gossip{}
	}
	s := m.Stats()
	return status.Gossip{
		Joins: s.Joins, JoinFailures: s.JoinFailures, Rejected: s.Rejected, Garbled: s.Garbled,
		Updates: s.Updates, HealthScore: s.HealthScore,
	}
}
