package l2

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// groups are the multicast memberships of one packet socket: those that make
// the link receive, and those that make a switch forward.
type groups struct {
	received membership
	reported membership

	open      func() (reporter, error)
	reporters []reporter
	home      map[netip.Addr]reporter // who reports a group
}

func newGroups(s sockets, l plan.Link, c conn) *groups {
	g := &groups{
		open: func() (reporter, error) { return s.reporter(l) },
		home: map[netip.Addr]reporter{},
	}
	g.received = membership{
		joined: map[netip.Addr]bool{},
		join:   func(group netip.Addr) error { return c.join(groupMAC(group)) },
		leave:  func(group netip.Addr) error { return c.leave(groupMAC(group)) },
	}
	g.reported = membership{joined: map[netip.Addr]bool{}, join: g.report, leave: g.unreport}
	return g
}

// set makes want the groups. Announcements of others go to all nodes, a group
// that nobody reports (RFC 3810, 6).
func (g *groups) set(want []netip.Addr) error {
	if len(want) == 0 {
		return nil // ARP
	}
	return errors.Join(g.received.set(append(slices.Clone(want), allNodes)), g.reported.set(want))
}

// report joins a group with a reporter that has room for it.
func (g *groups) report(group netip.Addr) error {
	if n := len(g.reporters); n > 0 {
		r := g.reporters[n-1]
		err := r.join(group)
		if err == nil {
			g.home[group] = r
		}
		if !errors.Is(err, syscall.ENOBUFS) && !errors.Is(err, syscall.ENOMEM) {
			return err
		}
	}
	r, err := g.open()
	if err != nil {
		return err
	}
	if err := r.join(group); err != nil {
		r.close()
		return err
	}
	g.reporters = append(g.reporters, r)
	g.home[group] = r
	return nil
}

func (g *groups) unreport(group netip.Addr) error {
	if err := g.home[group].leave(group); err != nil {
		return err
	}
	delete(g.home, group)
	return nil
}

// close ends the memberships that do not end with the packet socket.
func (g *groups) close() {
	for _, r := range g.reporters {
		r.close()
	}
}

// membership is the set of groups that really were joined.
type membership struct {
	joined      map[netip.Addr]bool
	join, leave func(netip.Addr) error
}

// set leaves what is not in want, joins what is missing, and goes on past
// errors. It tells the first of them, for they are all alike.
func (m *membership) set(want []netip.Addr) error {
	wanted := map[netip.Addr]bool{}
	for _, group := range want {
		wanted[group] = true
	}
	var first error
	for group := range m.joined {
		if wanted[group] {
			continue
		}
		if err := m.leave(group); err != nil && !errors.Is(err, syscall.EADDRNOTAVAIL) {
			first = cmp.Or(first, fmt.Errorf("leave %s: %w", group, err))
			continue
		}
		delete(m.joined, group)
	}
	for _, group := range want {
		if m.joined[group] {
			continue
		}
		if err := m.join(group); err != nil {
			first = cmp.Or(first, fmt.Errorf("join %s: %w", group, err))
			continue
		}
		m.joined[group] = true
	}
	return first
}
