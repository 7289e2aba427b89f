package l2

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/bpf"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

var (
	ourMAC     = mac{0x02, 0, 0, 0, 0, 0x01}
	ourMAC2    = mac{0x02, 0, 0, 0, 0, 0x02}
	clientMAC  = mac{0x02, 0, 0, 0, 0, 0xc1}
	winnerMAC  = mac{0x02, 0, 0, 0, 0, 0xb2}
	foreignMAC = mac{0x02, 0, 0, 0, 0, 0xff}

	clientIP  = addr("192.0.2.200")
	clientIP6 = addr("2001:db8::c1")
	vip       = addr("192.0.2.10")
	vip6      = addr("2001:db8::10")
	vip2      = addr("192.0.2.11")
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// eth returns a link that is up, number n in the fake network.
func eth(n int) plan.Link {
	return plan.Link{
		Name: fmt.Sprintf("eth%d", n), Index: n, Up: true,
		MAC: mac{0x02, 0, 0, 0, 0, byte(n)}.String(),
	}
}

// own is an announcement of an address that this node owns.
func own(a netip.Addr, links ...plan.Link) plan.Announcement {
	return plan.Announcement{Address: a, Links: links, Layer2: config.Layer2{
		GratuitousRefresh: time.Minute, ConflictDetection: config.ConflictWarn,
	}}
}

// yielded is an announcement of an address that another member owns, whose
// links have one of those MACs.
func yielded(a plan.Announcement, members ...mac) plan.Announcement {
	a.Yield = true
	a.Peers = maps.Clone(a.Peers)
	if a.Peers == nil {
		a.Peers = map[string]string{}
	}
	for _, m := range append(members, winnerMAC) {
		a.Peers[m.String()] = "n2"
	}
	return a
}

// network is a set of links without wires: the test says what arrives.
type network struct {
	mu    sync.Mutex
	links map[int]*fakeLink
	opens int
}

type fakeLink struct {
	fail  error // of the next and all later attempts to open a socket
	deaf  error // of the next and all later attempts to join or leave a group
	jam   error // of sending
	conns []*fakeConn
	sent  []sentFrame

	broadcasts uint64 // that have arrived

	reporters []*fakeReporter
}

type sentFrame struct {
	at    time.Time
	frame []byte
}

func newNetwork() *network { return &network{links: map[int]*fakeLink{}} }

// link returns a link, in with n.mu held.
func (n *network) link(index int) *fakeLink {
	if n.links[index] == nil {
		n.links[index] = &fakeLink{}
	}
	return n.links[index]
}

// change edits a link.
func (n *network) change(index int, f func(*fakeLink)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f(n.link(index))
}

func (n *network) packet(l plan.Link, etherType int, f []bpf.RawInstruction) (conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.opens++
	fl := n.link(l.Index)
	if fl.fail != nil {
		return nil, fl.fail
	}
	c := &fakeConn{
		net: n, link: fl, etherType: etherType,
		received: map[string]int{}, in: make(chan []byte, 4096), errs: make(chan error, 1), closed: make(chan struct{}),
	}
	c.vm = machine(f)
	fl.conns = append(fl.conns, c)
	return c, nil
}

// deliver lets a frame arrive on a link, at every socket whose filter wants it.
func (n *network) deliver(index int, frame []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if mac(frame) == broadcast {
		n.link(index).broadcasts++
	}
	for _, c := range n.link(index).conns {
		if kept, err := c.vm.Run(frame); err == nil && kept > 0 {
			c.in <- bytes.Clone(frame)
		}
	}
}

// fakeCounter counts the broadcasts that arrive, whomever they are from.
type fakeCounter struct {
	net  *network
	link *fakeLink
	had  uint64
}

func (n *network) counter(l plan.Link, _ int, _ []bpf.RawInstruction) (counter, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return &fakeCounter{n, n.link(l.Index), n.link(l.Index).broadcasts}, nil
}

func (c *fakeCounter) count() uint64 {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	n := c.link.broadcasts - c.had
	c.had = c.link.broadcasts
	return n
}

func (c *fakeCounter) close() {}

// take returns what was sent on a link since the last call.
func (n *network) take(index int) []sentFrame {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.link(index)
	out := l.sent
	l.sent = nil
	return out
}

// sockets returns how many are open on a link.
func (n *network) sockets(index int) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.link(index).conns)
}

// member counts a membership up or down, like the kernel.
func (l *fakeLink) member(groups map[string]int, group string, by int) error {
	if l.deaf != nil {
		return l.deaf
	}
	groups[group] += by
	if groups[group] < 0 {
		panic("left what was not joined: " + group)
	}
	if groups[group] == 0 {
		delete(groups, group)
	}
	return nil
}

// groups returns the groups that a link receives and reports.
func (n *network) groups(index int) (received, reported []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.link(index).conns {
		received = append(received, slices.Collect(maps.Keys(c.received))...)
	}
	for _, r := range n.link(index).reporters {
		reported = append(reported, slices.Collect(maps.Keys(r.groups))...)
	}
	slices.Sort(received)
	slices.Sort(reported)
	return received, reported
}

// reporterRoom is how many groups a fake reporter takes.
const reporterRoom = 3

type fakeReporter struct {
	net    *network
	link   *fakeLink
	groups map[string]int
}

func (n *network) reporter(l plan.Link) (reporter, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	r := &fakeReporter{net: n, link: n.link(l.Index), groups: map[string]int{}}
	r.link.reporters = append(r.link.reporters, r)
	return r, nil
}

func (r *fakeReporter) join(group netip.Addr) error {
	r.net.mu.Lock()
	defer r.net.mu.Unlock()
	if len(r.groups) == reporterRoom {
		return syscall.ENOBUFS
	}
	return r.link.member(r.groups, group.String(), 1)
}

func (r *fakeReporter) leave(group netip.Addr) error {
	r.net.mu.Lock()
	defer r.net.mu.Unlock()
	return r.link.member(r.groups, group.String(), -1)
}

func (r *fakeReporter) close() error {
	r.net.mu.Lock()
	defer r.net.mu.Unlock()
	r.link.reporters = slices.DeleteFunc(r.link.reporters, func(x *fakeReporter) bool { return x == r })
	return nil
}

// machine makes a virtual machine of a filter. It leaves out the question for
// the kind of frame, which only a kernel can answer.
func machine(raw []bpf.RawInstruction) *bpf.VM {
	ins, ok := bpf.Disassemble(raw)
	if !ok {
		panic("a filter that cannot be disassembled")
	}
	vm, err := bpf.NewVM(ins[len(toThisStation):])
	if err != nil {
		panic(err)
	}
	return vm
}

type fakeConn struct {
	net       *network
	link      *fakeLink
	etherType int
	vm        *bpf.VM
	received  map[string]int // groups
	in        chan []byte
	errs      chan error
	closed    chan struct{}
}

func (c *fakeConn) reader() func([]byte) (int, error) {
	return func(b []byte) (int, error) {
		select {
		case <-c.closed:
			return 0, errors.New("closed")
		case err := <-c.errs:
			return 0, err
		case frame := <-c.in:
			return copy(b, frame), nil
		}
	}
}

func (c *fakeConn) sender() func([]byte) error {
	return func(frame []byte) error {
		c.net.mu.Lock()
		defer c.net.mu.Unlock()
		if c.link.jam != nil {
			return c.link.jam
		}
		c.link.sent = append(c.link.sent, sentFrame{time.Now(), bytes.Clone(frame)})
		return nil
	}
}

func (c *fakeConn) setFilter(f []bpf.RawInstruction) error {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	c.vm = machine(f)
	return nil
}

func (c *fakeConn) join(group mac) error {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	return c.link.member(c.received, group.String(), 1)
}

func (c *fakeConn) leave(group mac) error {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	return c.link.member(c.received, group.String(), -1)
}

func (c *fakeConn) overflow() uint64 { return 0 }

func (c *fakeConn) close() error {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	close(c.closed)
	clear(c.received)
	c.link.conns = slices.DeleteFunc(c.link.conns, func(x *fakeConn) bool { return x == c })
	return nil
}
