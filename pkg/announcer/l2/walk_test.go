package l2

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

const (
	walkLinks     = 4
	walkAddresses = 8
)

// walkAddress returns one of the addresses; the last two are in one group.
func walkAddress(i int) netip.Addr {
	return []netip.Addr{
		vip, vip2, addr("198.51.100.1"), addr("203.0.113.1"),
		vip6, addr("2001:db8:1::1"), addr("2001:db8:2::aaaa"), addr("2001:db8:3::aaaa"),
	}[i]
}

// Any sequence of wanted sets, whatever happens to the links meanwhile, ends
// with exactly the last wanted set answered, on exactly the right links.
func TestRandomWalkEndsWithTheLastWantedSet(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			inBubble(t, func(b *bench) {
				w := walk{bench: b, r: rand.New(rand.NewPCG(seed, 0))}
				for range 60 {
					w.stumble()
				}
				w.arrive()
			})
		})
	}
}

type walk struct {
	*bench
	r *rand.Rand
}

// stumble makes one random step.
func (w *walk) stumble() {
	link := 1 + w.r.IntN(walkLinks)
	switch w.r.IntN(9) {
	case 0:
		w.net.change(link, func(l *fakeLink) { l.fail = w.trouble() })
	case 1:
		w.net.change(link, func(l *fakeLink) { l.jam = w.trouble() })
	case 2:
		w.net.change(link, func(l *fakeLink) {
			for _, c := range l.conns {
				select {
				case c.errs <- syscall.ENETDOWN:
				default:
				}
			}
		})
	case 3:
		w.net.deliver(link, announcementOf(walkAddress(w.r.IntN(walkAddresses)), winnerMAC, request))
	case 4:
		w.after(time.Duration(w.r.IntN(int(10 * time.Second))))
	case 5:
		w.net.change(link, func(l *fakeLink) { l.deaf = w.trouble() })
	default:
		_ = w.s.Set(context.Background(), w.want())
	}
	if w.r.IntN(2) == 0 {
		synctest.Wait()
	}
}

func (w *walk) trouble() error {
	return []error{nil, nil, errors.New("bad luck"), syscall.ENETDOWN, syscall.ENODEV}[w.r.IntN(5)]
}

// want draws a wanted set: any addresses, on any links, each link with its own
// of two MACs and up or not.
func (w *walk) want() []plan.Announcement {
	var links []plan.Link
	for i := range walkLinks {
		l := eth(i + 1)
		l.Up = w.r.IntN(4) > 0
		if w.r.IntN(4) == 0 {
			l.MAC = mac{0x02, 1, 0, 0, 0, byte(i)}.String()
		}
		links = append(links, l)
	}
	var out []plan.Announcement
	for i := range walkAddresses {
		if w.r.IntN(3) == 0 {
			continue
		}
		var on []plan.Link
		for _, l := range links {
			if w.r.IntN(2) == 0 {
				on = append(on, l)
			}
		}
		if len(on) == 0 {
			continue
		}
		a := own(walkAddress(i), on...)
		a.Yield = w.r.IntN(4) == 0
		a.First = w.r.IntN(4) == 0
		a.Ask = w.r.IntN(4) == 0
		a.Returns = w.r.IntN(2)
		a.Layer2.ConflictDetection = []config.ConflictDetection{"off", "warn", "refuse"}[w.r.IntN(3)]
		out = append(out, a)
	}
	return out
}

// arrive mends everything, asks for a last set, and compares.
func (w *walk) arrive() {
	for i := range walkLinks {
		w.net.change(i+1, func(l *fakeLink) { l.fail, l.jam, l.deaf = nil, nil, nil })
	}
	last := w.want()
	for i := range last {
		last[i].Layer2.ConflictDetection = config.ConflictWarn
		for j := range last[i].Links {
			last[i].Links[j].Up = true
		}
	}
	if err := w.s.Set(context.Background(), last); err != nil {
		w.t.Fatalf("the last Set: %v", err)
	}
	w.after(10 * time.Second)

	want := ending{macs: map[string]string{}, sockets: map[int]int{}, groups: map[int]map[string]bool{}}
	for _, a := range last {
		want.add(a)
	}
	w.compare(want)
}

// ending is how a walk should end.
type ending struct {
	macs    map[string]string       // by address and link
	sockets map[int]int             // bits of the families, by link
	groups  map[int]map[string]bool // by link
}

func (e *ending) add(a plan.Announcement) {
	for _, l := range a.Links {
		if a.Yield {
			continue
		}
		e.macs[fmt.Sprint(a.Address, " ", l.Name)] = l.MAC
		if a.Address.Is4() {
			e.sockets[l.Index] |= 1
			continue
		}
		e.sockets[l.Index] |= 2
		if e.groups[l.Index] == nil {
			e.groups[l.Index] = map[string]bool{}
		}
		e.groups[l.Index][solicitedNode(a.Address).String()] = true
	}
}

func (w *walk) compare(want ending) {
	said := map[string]string{}
	for _, a := range w.s.Answering() {
		for _, l := range a.Links {
			said[fmt.Sprint(a.Address, " ", l.Name)] = l.MAC
		}
	}
	if diff := cmp.Diff(want.macs, said); diff != "" {
		w.t.Errorf("Answering (-want +got):\n%s", diff)
	}
	heard := map[string]string{}
	for link := 1; link <= walkLinks; link++ {
		if n := bits.OnesCount(uint(want.sockets[link])); w.net.sockets(link) != n {
			w.t.Errorf("%d sockets on eth%d, want %d", w.net.sockets(link), link, n)
		}
		w.checkGroups(link, want.groups[link])
		for i := range walkAddresses {
			for _, by := range w.ask(link, walkAddress(i)) {
				heard[fmt.Sprintf("%s eth%d", walkAddress(i), link)] += by.String()
			}
		}
	}
	if diff := cmp.Diff(want.macs, heard); diff != "" {
		w.t.Errorf("answers on the wire (-want +got):\n%s", diff)
	}
}

// checkGroups compares the memberships of a link with the groups wanted.
func (w *walk) checkGroups(link int, want map[string]bool) {
	reported := slices.Sorted(maps.Keys(want))
	var received []string
	for _, group := range reported {
		received = append(received, groupMAC(addr(group)).String())
	}
	if len(reported) > 0 {
		received = append(received, groupMAC(allNodes).String())
	}
	slices.Sort(received)
	gotReceived, gotReported := w.net.groups(link)
	if diff := cmp.Diff([][]string{received, reported}, [][]string{gotReceived, gotReported}, cmpopts.EquateEmpty()); diff != "" {
		w.t.Errorf("groups of eth%d (-want +got):\n%s", link, diff)
	}
}
