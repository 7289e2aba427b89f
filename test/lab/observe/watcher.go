package observe

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Config says what a Watcher asks, and as whom.
type Config struct {
	Link      string
	Addresses []netip.Addr  // of both families
	Interval  time.Duration // between two questions for the same address

	// Who asks: addresses that nobody has, used in turn. With n of them an
	// answer that takes longer than n intervals is taken for one to a later
	// question.
	SendersV4, SendersV6 []netip.Addr
}

// A Watcher asks who has addresses until it is closed. Two that ask for the
// same address at the same time need different senders, or each takes the
// answers to the other for its own.
type Watcher struct {
	config Config
	mac    net.HardwareAddr
	arp    *socket
	ndp    *socket
	quit   chan struct{}
	tasks  sync.WaitGroup
	once   sync.Once

	observations map[netip.Addr]*Observation

	mu      sync.Mutex
	drops   int // frames that the kernel had no room for
	lastErr error
}

// Watch starts a Watcher in the network namespace of the calling thread.
func Watch(c Config) (*Watcher, error) {
	link, err := net.InterfaceByName(c.Link)
	if err != nil {
		return nil, fmt.Errorf("link %s: %w", c.Link, err)
	}
	w := &Watcher{config: c, mac: link.HardwareAddr, quit: make(chan struct{}), observations: map[netip.Addr]*Observation{}}
	for _, a := range c.Addresses {
		w.observations[a] = &Observation{addr: a}
	}
	if w.arp, err = openSocket(link, etherARP); err != nil {
		return nil, err
	}
	if w.ndp, err = openSocket(link, etherIPv6); err != nil {
		return nil, errors.Join(err, w.arp.close())
	}
	w.tasks.Go(w.ask)
	w.tasks.Go(func() { w.listen(w.arp, parseARP) })
	w.tasks.Go(func() { w.listen(w.ndp, parseNDP) })
	return w, nil
}

// Close stops asking and listening. What was observed stays. It returns an
// error when answers may have been missed, because the kernel had no room.
func (w *Watcher) Close() error {
	w.once.Do(func() { close(w.quit) })
	for _, s := range []*socket{w.arp, w.ndp} {
		w.close(s)
	}
	w.tasks.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.drops > 0 {
		return fmt.Errorf("the kernel dropped %d frames: gaps in the observation may be none", w.drops)
	}
	return w.lastErr
}

func (w *Watcher) close(s *socket) {
	n, err := s.dropped()
	closed := s.close()
	w.mu.Lock()
	defer w.mu.Unlock()
	if errors.Is(closed, os.ErrClosed) {
		return // closed before
	}
	w.drops += n
	w.lastErr = errors.Join(w.lastErr, err, closed)
}

// Of returns what was observed of one of the watched addresses. It goes on
// growing until the Watcher is closed.
func (w *Watcher) Of(addr netip.Addr) *Observation { return w.observations[addr] }

// Addresses returns the watched addresses, sorted.
func (w *Watcher) Addresses() []netip.Addr {
	return slices.SortedFunc(maps.Keys(w.observations), netip.Addr.Compare)
}

func (w *Watcher) ask() {
	tick := time.NewTicker(w.config.Interval)
	defer tick.Stop()
	for turn := 0; ; turn++ {
		for _, a := range w.config.Addresses {
			w.askFor(a, turn)
		}
		select {
		case <-w.quit:
			return
		case <-tick.C:
		}
	}
}

// askFor records a question before it sends it, because the answer may be
// faster than the way back from the system call.
func (w *Watcher) askFor(addr netip.Addr, turn int) {
	senders, sock, question := w.config.SendersV4, w.arp, arpQuestion
	if addr.Is6() {
		senders, sock, question = w.config.SendersV6, w.ndp, ndpQuestion
	}
	sender := senders[turn%len(senders)]
	o := w.observations[addr]
	o.asked(sender, time.Now())
	if err := sock.send(question(w.mac, sender, addr)); err != nil {
		o.unasked(sender)
	}
}

func (w *Watcher) listen(s *socket, parse func([]byte) (answer, bool)) {
	buffer := make([]byte, 65536)
	for {
		n, at, err := s.receive(buffer)
		if errors.Is(err, unix.ENETDOWN) {
			continue // the link went down; it may come up again
		}
		if err != nil {
			return // closed
		}
		if a, ok := parse(buffer[:n]); ok {
			w.record(a, at)
		}
	}
}

func (w *Watcher) record(a answer, at time.Time) {
	if o, ok := w.observations[a.addr]; ok {
		o.heard(a, at)
	}
}
