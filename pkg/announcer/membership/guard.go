package membership

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
)

// guard is memberlist's own transport with a door: packets that are not from a
// member of this cluster go no further, are counted by cause, and do not count
// as a sign of life. memberlist would only log them.
type guard struct {
	*memberlist.NetTransport
	keys  *keys
	label string
	note  func(from netip.Addr, cause string) // of what was refused

	packets chan *memberlist.Packet
	heard   atomic.Int64 // when the last authentic packet came, since born
	born    time.Time

	mu      sync.Mutex
	senders map[netip.Addr]time.Time // when the last one came from whom

	closing sync.Once
	closed  chan struct{}
	ended   chan struct{}
}

// Causes of a refusal, for people.
const (
	foreignLabel = "of another cluster"
	wrongKey     = "wrong key or clear text"
)

// newGuard puts a door into a transport, which it owns from then on.
func newGuard(t *memberlist.NetTransport, keys *keys, label string, note func(netip.Addr, string)) *guard {
	g := &guard{
		NetTransport: t, keys: keys, label: label, note: note, born: time.Now(),
		senders: map[netip.Addr]time.Time{},
		packets: make(chan *memberlist.Packet), closed: make(chan struct{}), ended: make(chan struct{}),
	}
	go g.run()
	return g
}

// PacketCh returns what is let in.
func (g *guard) PacketCh() <-chan *memberlist.Packet { return g.packets }

// Shutdown closes the transport.
func (g *guard) Shutdown() error {
	err := g.NetTransport.Shutdown()
	g.closing.Do(func() { close(g.closed) })
	<-g.ended
	return err
}

func (g *guard) run() {
	defer close(g.ended)
	for {
		select {
		case <-g.closed:
			return
		case p := <-g.NetTransport.PacketCh():
			if cause := g.refuses(p.Buf); cause != "" {
				g.note(addressFrom(p.From), cause)
				continue
			}
			g.hear(addressFrom(p.From), time.Now())
			select {
			case g.packets <- p:
			case <-g.closed:
				return
			}
		}
	}
}

// refuses returns why a packet is not from a member, nothing if it is.
func (g *guard) refuses(packet []byte) string {
	payload, label, err := memberlist.RemoveLabelHeaderFromPacket(packet)
	switch {
	case err != nil || label != g.label:
		return foreignLabel
	case g.keys.ring != nil && !g.keys.authentic(payload, []byte(label)):
		return wrongKey
	}
	return ""
}

// silence returns how long nothing authentic has come.
func (g *guard) silence(now time.Time) time.Duration {
	return now.Sub(g.born.Add(time.Duration(g.heard.Load())))
}

// hear notes an authentic packet.
func (g *guard) hear(from netip.Addr, now time.Time) {
	g.heard.Store(int64(now.Sub(g.born)))
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, known := g.senders[from]; !known && len(g.senders) >= maxMembers {
		clear(g.senders) // they are soon heard again
	}
	g.senders[from] = now
}

// silenceOf returns how long nothing authentic has come from an address.
func (g *guard) silenceOf(a netip.Addr, now time.Time) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return now.Sub(g.senders[a])
}

func addressFrom(a net.Addr) netip.Addr {
	if udp, ok := a.(*net.UDPAddr); ok {
		return udp.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}
