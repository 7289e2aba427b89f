package l2

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// tableOf holds claims that are answered.
func tableOf(addresses []netip.Addr) *table {
	t := &table{mac: ourMAC, owns: []mac{ourMAC}, claims: map[netip.Addr]*claim{}}
	for _, a := range addresses {
		t.claims[a] = &claim{address: a}
		t.claims[a].state.Store(answering)
	}
	return t
}

// A reply costs no allocation, from the socket to the socket.
func TestReplyAllocatesNothing(t *testing.T) {
	for _, c := range []struct {
		protocol protocol
		address  netip.Addr
	}{{arpProtocol{}, vip}, {ndpProtocol{}, vip6}} {
		t.Run(c.protocol.name(), func(t *testing.T) {
			node, client := newHost(t, "node"), newHost(t, "client")
			cable(node, "eth0", client, "eth0")
			ours, theirs := openFor(t, node, c.protocol, c.address), openFor(t, client, c.protocol, c.address)
			read, send := ours.reader(), ours.sender()
			hear, ask := theirs.reader(), theirs.sender()

			r := &reader{protocol: c.protocol, stats: &familyStats{}, passed: &atomic.Uint64{}, table: &atomic.Pointer[table]{}}
			claimed := &claim{address: c.address}
			claimed.state.Store(answering)
			own := node.mac("eth0")
			r.table.Store(&table{mac: own, owns: []mac{own}, claims: map[netip.Addr]*claim{c.address: claimed}})

			frame, heard, buf := make([]byte, frameRoom), make([]byte, frameRoom), make([]byte, 0, replyRoom)
			question := requestBy(client.mac("eth0"), c.address)
			allocs := testing.AllocsPerRun(500, func() {
				must(t, ask(question))
				n, err := read(frame)
				must(t, err)
				r.handle(frame[:n], buf, send)
				_, err = hear(heard)
				must(t, err)
			})
			if allocs != 0 {
				t.Errorf("%v allocations per reply", allocs)
			}
			if n := r.stats.replies.Load(); n < 500 {
				t.Errorf("%d replies", n)
			}
		})
	}
}

// openFor opens a socket that hears of one address.
func openFor(t testing.TB, h *host, p protocol, a netip.Addr) conn {
	t.Helper()
	f, err := program(p, h.mac("eth0"), []netip.Prefix{netip.PrefixFrom(a, a.BitLen())})
	must(t, err)
	c, err := h.packet(h.link("eth0"), p.etherType(), f)
	must(t, err)
	t.Cleanup(func() { c.close() })
	if group, ok := p.group(a); ok {
		must(t, c.join(groupMAC(group)))
	}
	return c
}

// requestBy is requestFor by another client.
func requestBy(by mac, a netip.Addr) []byte {
	if a.Is6() {
		p := solicits(a)
		p.src, p.option = by, by
		return p.appendTo(nil)
	}
	p := asks(a)
	p.src, p.senderMAC = by, by
	return p.appendTo(nil)
}

func must(t testing.TB, err error) {
	if err != nil {
		t.Fatal(err)
	}
}

// What a request costs in user space: one that is answered, and one for an
// address that lies among ours but is not ours, with few and with many.
func BenchmarkJudge(b *testing.B) {
	for _, n := range []int{10, 10000} {
		four, six := tableOf(addressesFrom(addr("198.18.0.0"), n)), tableOf(addressesFrom(addr("2001:db8::"), n))
		for _, c := range []struct {
			name     string
			protocol protocol
			table    *table
			address  string
		}{
			{"ARP/answered", arpProtocol{}, four, "198.18.0.5"},
			{"ARP/unrelated", arpProtocol{}, four, "198.18.255.1"},
			{"NDP/answered", ndpProtocol{}, six, "2001:db8::5"},
			{"NDP/unrelated", ndpProtocol{}, six, "2001:db8::ff:1"},
		} {
			b.Run(fmt.Sprintf("%s/addresses=%d", c.name, n), func(b *testing.B) {
				frame, buf := requestFor(addr(c.address)), make([]byte, 0, replyRoom)
				b.ReportAllocs()
				for b.Loop() {
					c.protocol.judge(c.table, frame, buf)
				}
			})
		}
	}
}

// What an unrelated request costs on the wire with few and with many
// addresses: the filter has it, so sending it is all there is.
func BenchmarkUnrelatedOnTheWire(b *testing.B) {
	for _, n := range []int{10, 10000} {
		b.Run(fmt.Sprintf("addresses=%d", n), func(b *testing.B) {
			node, client := newHost(b, "node"), newHost(b, "client")
			cable(node, "eth0", client, "eth0")
			st := newStation(client, "eth0", clientIP, etherTypeARP)
			tab := tableOf(addressesFrom(addr("198.18.0.0"), n))
			f, err := program(arpProtocol{}, node.mac("eth0"), cover(slices.Collect(maps.Keys(tab.claims)), maxPrefixes))
			must(b, err)
			c, err := node.packet(node.link("eth0"), etherTypeARP, f)
			must(b, err)
			var stats familyStats
			r := &reader{
				protocol: arpProtocol{}, conn: c, table: &atomic.Pointer[table]{}, stats: &stats, passed: &atomic.Uint64{},
				quit: make(chan struct{}), done: make(chan struct{}),
			}
			r.table.Store(tab)
			go r.run()
			defer r.stop()
			frame := st.request(addr("203.0.113.77")).appendTo(nil)
			for b.Loop() {
				st.send(frame)
			}
			if woke := stats.dropped[NotClaimed].Load(); woke != 0 {
				b.Errorf("woken %d times", woke)
			}
		})
	}
}

// Set with 10,000 addresses: the first time, and when nothing has changed.
func BenchmarkSet(b *testing.B) {
	n := newNetwork()
	var want []plan.Announcement
	for _, a := range addressesFrom(addr("198.18.0.0"), 10000) {
		want = append(want, own(a, eth(1)))
	}
	s := New(Options{sockets: n})
	defer s.Close()
	b.Run("all new", func(b *testing.B) {
		for b.Loop() {
			set(b, s)
			set(b, s, want...)
		}
	})
	b.Run("unchanged", func(b *testing.B) {
		for b.Loop() {
			set(b, s, want...)
		}
	})
}

// BenchmarkThroughput floods the speaker with requests.
func BenchmarkThroughput(b *testing.B) {
	p := newPair(b, families[0])
	set(b, p.speaker, p.own(vip))
	p.station.resolve(vip)
	frame := p.station.request(vip).appendTo(nil)
	before := p.speaker.Stats().ARP.Replies
	for b.Loop() {
		p.station.send(frame)
	}
	elapsed := b.Elapsed()
	st := p.speaker.Stats()
	b.ReportMetric(float64(st.ARP.Replies-before)/elapsed.Seconds(), "replies/s")
	b.ReportMetric(float64(st.Links[0].Overflow), "overflow")
}
