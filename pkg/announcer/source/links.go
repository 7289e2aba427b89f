package source

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

const (
	// A change of one link comes as several messages, so a reading waits for
	// the rest of them; and no two readings are closer than this, however
	// busy the routing table of the node is.
	linkSettle   = 5 * time.Millisecond
	linkInterval = 100 * time.Millisecond

	linkRetryFirst = 100 * time.Millisecond
	linkRetryLast  = 5 * time.Second

	// linkBuffer is the receive buffer: a storm that overflows it costs a
	// new subscription and a full reading.
	linkBuffer = 1 << 20
)

// Links follows this node's links, their addresses and routes. It does not
// poll: the kernel tells when something has changed, and then everything is
// read anew, so that no message can be missed or misread. A link that has lost
// its carrier is down at once, and up again when it has had it for 5 s.
type Links struct {
	kick      func()
	log       *slog.Logger
	subscribe func() (receiver, error)
	read      func() (*linkTable, error)
	carriers  carriers // Run's own
	drops     drops

	mu    sync.Mutex
	table *linkTable // replaced, never changed
	err   error      // why it is not known, or not up to date
}

// receiver is what we use of a netlink socket.
type receiver interface {
	Receive() ([]syscall.NetlinkMessage, *unix.SockaddrNetlink, error)
	Close()
}

// NewLinks returns the links of the network namespace that Run runs in. kick
// is called after each change and must not block.
func NewLinks(kick func(), log *slog.Logger) *Links {
	return &Links{kick: kick, log: log, subscribe: subscribeLinks, read: readLinks, carriers: carriers{}}
}

// current returns the newest reading, or an error before the first one.
func (l *Links) current() (*linkTable, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.table != nil:
		return l.table, nil
	case l.err != nil:
		return nil, fmt.Errorf("links: %w", l.err)
	default:
		return nil, errors.New("links")
	}
}

// Run follows the links until ctx ends. It never gives up: after an error it
// subscribes again and reads everything.
func (l *Links) Run(ctx context.Context) error {
	retry := linkRetryFirst
	for {
		began := time.Now()
		err := l.follow(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if time.Since(began) > linkRetryLast {
			retry = linkRetryFirst
		}
		l.failed(err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retry):
		}
		retry = min(2*retry, linkRetryLast)
	}
}

// follow reads the links after each batch of messages, until ctx ends or
// something fails. It subscribes before it reads, so that nothing falls
// between the two.
func (l *Links) follow(ctx context.Context) error {
	socket, err := l.subscribe()
	if err != nil {
		return fmt.Errorf("subscribe to link events: %w", err)
	}
	stop := context.AfterFunc(ctx, socket.Close)
	defer func() {
		if stop() {
			socket.Close()
		}
	}()
	news, broken := make(chan struct{}, 1), make(chan error, 1)
	go l.receive(socket, news, broken)
	for {
		due, err := l.look()
		if err != nil {
			return err
		}
		next := time.Now().Add(linkInterval)
		select {
		case <-ctx.Done():
			return nil
		case err := <-broken:
			return fmt.Errorf("receive link events: %w", err)
		case <-news:
		case <-due:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(max(linkSettle, time.Until(next))):
		}
		select {
		case <-news: // what has come meanwhile is covered by this reading
		default:
		}
	}
}

// look reads the links, and returns a channel that tells when to look again
// although nothing happens, nil for never.
func (l *Links) look() (<-chan time.Time, error) {
	table, err := l.read()
	if err != nil {
		return nil, fmt.Errorf("read links: %w", err)
	}
	due := l.carriers.settle(table, l.drops.take(), time.Now())
	l.set(table)
	if due.IsZero() {
		return nil, nil
	}
	return time.After(time.Until(due)), nil
}

// receive tells of messages until the socket fails or is closed. What is in
// them does not matter, but that a link was down.
func (l *Links) receive(socket receiver, news chan<- struct{}, broken chan<- error) {
	for {
		messages, _, err := socket.Receive()
		if err != nil {
			broken <- err
			return
		}
		l.drops.note(messages)
		select {
		case news <- struct{}{}:
		default:
		}
	}
}

func (l *Links) set(table *linkTable) {
	l.mu.Lock()
	recovered := l.err != nil
	changed := l.table == nil || !reflect.DeepEqual(l.table, table)
	l.err = nil
	if changed {
		l.table = table
	}
	l.mu.Unlock()
	if recovered {
		l.log.Info("links can be followed again")
	}
	if changed {
		l.kick()
	}
}

func (l *Links) failed(err error) {
	l.mu.Lock()
	again := l.err != nil
	l.err = err
	l.mu.Unlock()
	if !again {
		l.log.Warn("cannot follow links, keeping what is known and trying again", "err", err)
	}
}

func subscribeLinks() (receiver, error) {
	socket, err := nl.Subscribe(unix.NETLINK_ROUTE,
		unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
		unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE)
	if err != nil {
		return nil, err
	}
	if err := socket.SetReceiveBufferSize(linkBuffer, false); err != nil {
		socket.Close()
		return nil, err
	}
	return socket, nil
}
