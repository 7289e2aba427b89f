package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"golang.org/x/sync/errgroup"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/record"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/source"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/status"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/version"
)

// bell carries kicks from the parts, which are built first, to the loop. What
// rings while the loop is busy rings once.
type bell chan struct{}

func (b bell) ring() {
	select {
	case b <- struct{}{}:
	default:
	}
}

// carry calls kick after each ring until ctx ends.
func (b bell) carry(ctx context.Context, kick func()) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-b:
			kick()
		}
	}
}

// serve announces until ctx ends, and leaves without loss.
func serve(ctx context.Context, o options, log *slog.Logger) error {
	frugal()
	api, err := newClient(o.kubeconfig, o.observeOnly, log)
	if err != nil {
		return err
	}
	public, debug, err := listen(o)
	if err != nil {
		return err
	}
	kick := make(bell, 1)
	links := source.NewLinks(kick.ring, log)
	world := source.New(source.Options{
		Node: o.node, API: api, Namespace: o.namespace, File: o.configFile, Links: links, Kick: kick.ring, Log: log,
		Rehearse: o.observeOnly,
	})
	past := record.Open(record.Options{Path: o.recordFile(), Kick: kick.ring, Log: log})
	rekey := make(bell, 1)
	secret, follow := keys(o, world, rekey)
	gossip := newGossip(gossipOptions{
		node: o.node, api: api, world: world, secret: secret, record: past, rekey: rekey, kick: kick.ring, log: log,
		label: o.gossipLabel(),
	})
	speaker, router := speak(o, api, kick.ring, log)
	defer speaker.Close()
	defer router.Close()
	events, conditions := newReporters(o.node, api, world, log)
	page := newStatus(parts{o.node, o.observeOnly, world, gossip, past, speaker, router, events, log})
	loop := announcer.New(announcer.Options{
		Source:   world.With(gossip),
		Speakers: []announcer.Speaker{speaker},
		Router:   router,
		Publish:  gossip.Publish,
		Observe: func(p announcer.Pass) {
			page.Observe(status.Pass(p))
			if o.observeOnly {
				return // what Services say is up to those who announce
			}
			conditions.Observe(status.Pass(p), speaker.Answering(), conflicts(speaker))
		},
		Log: log,
	})
	bridge(log)
	log.Info("starting", "node", o.node, "version", version.String(), "observe only", o.observeOnly)
	return together(ctx, loop, gossip,
		links.Run, world.Run, follow, gossip.Run, events.Run, conditions.Run, past.Run,
		func(ctx context.Context) error { return kick.carry(ctx, loop.Kick) },
		func(ctx context.Context) error { return page.Serve(ctx, public, debug) },
	)
}

// keys returns the Secret of the gossip keys and what follows it, which is
// nothing where gossip is in clear text.
func keys(o options, world *source.World, rekey bell) (*source.Secret, func(context.Context) error) {
	if o.insecureMembership {
		return nil, func(context.Context) error { return nil }
	}
	secret := world.NewSecret(gossipSecret, rekey.ring)
	return secret, secret.Run
}

// newReporters makes what tells of this node's announcements on the Services.
func newReporters(node string, api *source.API, world *source.World, log *slog.Logger) (*status.Events, *status.Conditions) {
	sink := conditionSink{api, world}
	events := status.NewEvents(status.EventOptions{
		Node: node, Sink: eventSink{api}, UID: world.UID, Observed: sink.observed, Log: log,
	})
	return events, status.NewConditions(status.ConditionOptions{
		Observed: sink.observed, Write: sink.write, Warn: events.Warn, Log: log,
	})
}

// listen opens both ports first of all: if that fails, nothing has begun.
func listen(o options) (public, debug net.Listener, err error) {
	public, err = net.Listen("tcp", o.publicAddress())
	if err != nil {
		return nil, nil, fmt.Errorf("health and metrics: %w", err)
	}
	debug, err = net.Listen("tcp", o.debugAddress)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("debug pages: %w", err), public.Close())
	}
	return public, debug, nil
}

// together runs the loop and all else until ctx ends or something fails. What
// the loop needs to leave without loss goes on until it has left.
func together(ctx context.Context, loop *announcer.Announcer, gossip *gossip, tasks ...func(context.Context) error) error {
	lasting, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	g, lasting := errgroup.WithContext(lasting)
	for _, task := range tasks {
		g.Go(func() error { return task(lasting) })
	}
	g.Go(func() error {
		defer stop()
		until, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(lasting, cancel)() // if a task has failed
		err := loop.Run(until)
		gossip.leave()
		return err
	})
	return g.Wait()
}
