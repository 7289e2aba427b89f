package source

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

func prefixes(texts ...string) []netip.Prefix {
	var list []netip.Prefix
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

// fakeKernel has links that tests change, and netlink sockets that break.
type fakeKernel struct {
	mu       sync.Mutex
	name     string // of the only link
	down     bool
	readErr  error
	readings int
	sockets  int
	socket   *fakeSocket
}

type fakeSocket struct{ messages chan error }

func (s *fakeSocket) Receive() ([]syscall.NetlinkMessage, *unix.SockaddrNetlink, error) {
	err, open := <-s.messages
	if !open {
		err = errors.New("closed")
	}
	return nil, nil, err
}

func (s *fakeSocket) Close() { close(s.messages) }

func (k *fakeKernel) subscribe() (receiver, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sockets++
	k.socket = &fakeSocket{messages: make(chan error, 100)}
	return k.socket, nil
}

func (k *fakeKernel) read() (*linkTable, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.readings++
	if k.readErr != nil {
		return nil, k.readErr
	}
	return &linkTable{links: []link{{Link: plan.Link{Name: k.name, Index: 1, Up: !k.down}}}}, nil
}

func (k *fakeKernel) count(what *int) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return *what
}

// becomes renames the link; a nil message tells of it, another one is lost.
func (k *fakeKernel) becomes(name string, message error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.name = name
	k.socket.messages <- message
}

// carrier gives the link a carrier or takes it, and tells of it.
func (k *fakeKernel) carrier(up bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.down == up {
		k.down = !up
		k.socket.messages <- nil
	}
}

func (k *fakeKernel) fails(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.readErr = err
}

// withLinks runs a test with links that follow a fake kernel.
func withLinks(t *testing.T, test func(t *testing.T, k *fakeKernel, l *Links, log *journal, kicks *atomic.Int64)) {
	synctest.Test(t, func(t *testing.T) {
		k, log, kicks := &fakeKernel{name: "a"}, &journal{}, new(atomic.Int64)
		l := NewLinks(func() { kicks.Add(1) }, log.logger())
		l.subscribe, l.read = k.subscribe, k.read
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- l.Run(ctx) }()
		synctest.Wait()
		test(t, k, l, log, kicks)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func (l *Links) name(t *testing.T) string {
	t.Helper()
	table, err := l.current()
	if err != nil {
		t.Fatal(err)
	}
	return table.links[0].Name
}

func TestLinksAreReadAgainAfterEachBatchOfMessages(t *testing.T) {
	withLinks(t, func(t *testing.T, k *fakeKernel, l *Links, _ *journal, kicks *atomic.Int64) {
		if l.name(t) != "a" || kicks.Load() != 1 {
			t.Fatalf("at first %s, %d kicks", l.name(t), kicks.Load())
		}
		time.Sleep(time.Second)
		k.becomes("b", nil)
		time.Sleep(2 * linkSettle)
		synctest.Wait()
		if l.name(t) != "b" || kicks.Load() != 2 {
			t.Errorf("after a message %s, %d kicks", l.name(t), kicks.Load())
		}
		for range 50 {
			k.becomes("b", nil)
		}
		time.Sleep(time.Second)
		if k.count(&k.readings) != 3 || kicks.Load() != 2 {
			t.Errorf("a storm that changes nothing: %d readings, %d kicks", k.count(&k.readings), kicks.Load())
		}
	})
}

func TestLinksSubscribeAgainAfterAnOverflow(t *testing.T) {
	withLinks(t, func(t *testing.T, k *fakeKernel, l *Links, log *journal, _ *atomic.Int64) {
		for i, name := range []string{"b", "c", "d"} {
			k.becomes(name, unix.ENOBUFS)
			time.Sleep(linkRetryLast)
			synctest.Wait()
			if l.name(t) != name || k.count(&k.sockets) != i+2 {
				t.Errorf("after %d overflows %s with socket %d", i+1, l.name(t), k.count(&k.sockets))
			}
		}
		if got := log.count("links can be followed again"); got != 3 {
			t.Errorf("%d recoveries in the log", got)
		}
	})
}

func TestLinksKeepWhatTheyKnowAndComplainOnce(t *testing.T) {
	withLinks(t, func(t *testing.T, k *fakeKernel, l *Links, log *journal, kicks *atomic.Int64) {
		k.fails(errors.New("out of memory"))
		k.becomes("b", nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		if l.name(t) != "a" || kicks.Load() != 1 {
			t.Errorf("in the outage %s, %d kicks", l.name(t), kicks.Load())
		}
		if got := log.count("cannot follow links"); got != 1 {
			t.Errorf("%d complaints", got)
		}
		k.fails(nil)
		time.Sleep(2 * linkRetryLast)
		synctest.Wait()
		if l.name(t) != "b" || kicks.Load() != 2 {
			t.Errorf("after the outage %s, %d kicks", l.name(t), kicks.Load())
		}
	})
}

func TestLinksAreUnknownUntilTheFirstReading(t *testing.T) {
	l := NewLinks(func() {}, (&journal{}).logger())
	if _, err := l.current(); err == nil || err.Error() != "links" {
		t.Errorf("before any reading: %v", err)
	}
	l.failed(errors.New("read links: permission denied"))
	if _, err := l.current(); err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("after a failed reading: %v", err)
	}
}
