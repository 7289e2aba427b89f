package l2

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// bench is a speaker on a fake network, in a bubble of fake time.
type bench struct {
	t     *testing.T
	net   *network
	s     *Speaker
	log   *journal
	kicks chan struct{}
	start time.Time
}

// inBubble runs a test with a speaker. Everything that the speaker started must
// have ended when the bubble does.
func inBubble(t *testing.T, f func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{t: t, net: newNetwork(), log: &journal{}, kicks: make(chan struct{}, 1000), start: time.Now()}
		b.s = New(Options{
			Log:     slog.New(slog.NewTextHandler(b.log, &slog.HandlerOptions{ReplaceAttr: withoutTime})),
			Kick:    func() { b.kicks <- struct{}{} },
			sockets: b.net,
		})
		defer b.s.Close()
		f(b)
	})
}

// journal is a log that may be read at any time.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

func (j *journal) Len() int { return len(j.String()) }

func (j *journal) Reset() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.text.Reset()
}

func withoutTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// set asks for want and waits until everything that is due at once was done.
func (b *bench) set(want ...plan.Announcement) {
	b.t.Helper()
	if err := b.s.Set(context.Background(), want); err != nil {
		b.t.Fatalf("Set: %v", err)
	}
	synctest.Wait()
}

// after lets time pass.
func (b *bench) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// ask lets a client ask for an address on a link, and returns the MACs in the replies.
func (b *bench) ask(index int, a netip.Addr) []mac {
	b.t.Helper()
	before := b.net.take(index)
	b.net.deliver(index, requestFor(a))
	synctest.Wait()
	var out []mac
	all := b.net.take(index)
	for _, f := range all {
		if mac(f.frame) == clientMAC {
			out = append(out, replyOf(b.t, f.frame, a))
		}
	}
	b.net.change(index, func(l *fakeLink) { l.sent = append(append(before, all...), l.sent...) })
	return out
}

// replyOf returns the MAC that a reply gives for an address.
func replyOf(t *testing.T, frame []byte, a netip.Addr) mac {
	t.Helper()
	if a.Is6() {
		p := mustNDP(t, frame)
		if p.kind != neighborAdvertisement || p.flags != solicited|override || p.target != a || p.src != p.option {
			t.Errorf("replied %+v", p)
		}
		return p.option
	}
	p := mustARP(t, frame)
	if p.operation != arpReply || p.senderIP != a || p.src != p.senderMAC {
		t.Errorf("replied %+v", p)
	}
	return p.senderMAC
}

// answers tells whether the speaker answers for an address on a link.
func (b *bench) answers(index int, a netip.Addr) bool {
	b.t.Helper()
	return len(b.ask(index, a)) == 1
}

// kicked returns how often Kick was called since the last time.
func (b *bench) kicked() int {
	n := 0
	for {
		select {
		case <-b.kicks:
			n++
		default:
			return n
		}
	}
}

// announced returns what was sent unasked on a link: when, and in which form.
func (b *bench) announced(index int) []string {
	b.t.Helper()
	var out []string
	for _, f := range b.net.take(index) {
		if mac(f.frame).group() {
			out = append(out, fmt.Sprintf("%s %s", f.at.Sub(b.start), describe(b.t, f.frame)))
		}
	}
	return out
}

// describe names an unasked frame and the address that it is about.
func describe(t *testing.T, frame []byte) string {
	t.Helper()
	if binary.BigEndian.Uint16(frame[12:]) == etherTypeARP {
		p := mustARP(t, frame)
		return fmt.Sprintf("%s %s", form(p), p.targetIP)
	}
	p := mustNDP(t, frame)
	if p.kind == neighborSolicitation {
		return fmt.Sprintf("probe %s", p.target)
	}
	return fmt.Sprintf("advertisement %s", p.target)
}

func form(p arpPacket) string {
	switch {
	case p.senderIP == netip.IPv4Unspecified():
		return "probe"
	case p.operation == arpReply:
		return "reply"
	}
	return "request"
}

func mustARP(t *testing.T, frame []byte) arpPacket {
	t.Helper()
	p, ok := parseARP(frame)
	if !ok {
		t.Fatalf("sent what is no ARP packet: %x", frame)
	}
	return p
}

func mustNDP(t *testing.T, frame []byte) ndpPacket {
	t.Helper()
	p, cause := parseNDP(frame)
	if cause != accepted {
		t.Fatalf("sent what is no NDP packet (%s): %x", cause, frame)
	}
	return p
}

// requestFor is what a client multicasts to resolve an address.
func requestFor(a netip.Addr) []byte {
	if a.Is6() {
		p := solicits(a)
		return p.appendTo(nil)
	}
	return asks(a).appendTo(nil)
}

func solicits(a netip.Addr) ndpPacket {
	group := solicitedNode(a)
	return ndpPacket{
		dst: groupMAC(group), src: clientMAC, sourceIP: clientIP6, destIP: group,
		kind: neighborSolicitation, target: a, option: clientMAC,
	}
}

func asks(a netip.Addr) arpPacket {
	return arpPacket{
		dst: broadcast, src: clientMAC, operation: arpRequest,
		senderMAC: clientMAC, senderIP: clientIP, targetIP: a,
	}
}

// announcementOf is what another owner of an address tells everybody.
func announcementOf(a netip.Addr, by mac, k kind) []byte {
	if a.Is6() {
		return ndpProtocol{}.frame(k, by, a)
	}
	return arpProtocol{}.frame(k, by, a)
}
