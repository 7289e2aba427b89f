package l2

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

const kernelWalkLinks = 3

// kernelWalk is a node with real links, each to a station on a host of its own.
type kernelWalk struct {
	*testing.T
	node    *host
	far     *host
	speaker *Speaker
	r       *rand.Rand
	made    int // links so far
	names   [kernelWalkLinks]string
}

// The walk of TestRandomWalkEndsWithTheLastWantedSet with real links and
// sockets: links go down and up, get other names and MACs, and are replaced.
// The kernel is asked which groups each link is in, and a station on its other
// end who answers for what.
func TestRandomWalkInTheKernel(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			w := kernelWalk{T: t, node: newHost(t, "node"), far: newHost(t, "far"), r: rand.New(rand.NewPCG(seed, 1))}
			w.node.Sysctl("net/ipv6/conf/default/addr_gen_mode", "1") // no groups that come late
			w.speaker = w.node.speaker()
			for i := range kernelWalkLinks {
				w.replace(i)
			}
			for range 60 {
				w.stumble()
			}
			w.arrive()
		})
	}
}

// replace makes a link, instead of the one that was there.
func (w *kernelWalk) replace(i int) {
	if w.names[i] != "" {
		w.node.Must(w.node.Net.LinkDel(w.node.Link(w.names[i])))
	}
	w.made++
	w.names[i] = fmt.Sprint("eth", i)
	cable(w.node, w.names[i], w.far, fmt.Sprint("far", i))
}

func (w *kernelWalk) stumble() {
	i := w.r.IntN(kernelWalkLinks)
	switch w.r.IntN(10) {
	case 0:
		w.node.Down(w.names[i])
	case 1, 2:
		w.node.Up(w.names[i])
	case 3:
		w.far.Down(fmt.Sprint("far", i))
	case 4:
		w.far.Up(fmt.Sprint("far", i))
	case 5:
		name := fmt.Sprintf("lan%d-%d", i, w.r.IntN(1000))
		w.node.Must(w.node.Net.LinkSetName(w.node.Link(w.names[i]), name))
		w.names[i] = name
	case 6:
		w.node.Must(w.node.Net.LinkSetHardwareAddr(w.node.Link(w.names[i]), []byte{2, 0xab, 0, 0, byte(w.r.IntN(256)), byte(i)}))
	case 7:
		w.replace(i)
	default:
		_ = w.speaker.Set(w.Context(), w.want())
	}
	time.Sleep(time.Duration(w.r.IntN(15)) * time.Millisecond)
}

// want draws a wanted set on the links as they are now.
func (w *kernelWalk) want() []plan.Announcement {
	var out []plan.Announcement
	for i := range walkAddresses {
		var on []plan.Link
		for _, name := range w.names {
			if w.r.IntN(2) == 0 {
				on = append(on, w.node.link(name))
			}
		}
		if len(on) == 0 {
			continue
		}
		a := own(walkAddress(i), on...)
		a.Yield = w.r.IntN(4) == 0
		a.Ask = w.r.IntN(4) == 0
		a.Layer2.ConflictDetection = "warn"
		out = append(out, a)
	}
	return out
}

// arrive mends everything, asks for a last set, and compares.
func (w *kernelWalk) arrive() {
	for i, name := range w.names {
		w.node.Up(name)
		w.far.Up(fmt.Sprint("far", i))
		w.node.eventually("carrier", func() bool { return w.node.link(name).Up })
	}
	last := w.want()
	set(w.T, w.speaker, last...)
	want, groups := map[string]string{}, map[string]map[string]bool{}
	for _, a := range last {
		for _, l := range a.Links {
			if a.Yield {
				continue
			}
			want[fmt.Sprint(a.Address, " ", l.Name)] = l.MAC
			if a.Address.Is6() {
				if groups[l.Name] == nil {
					groups[l.Name] = map[string]bool{}
				}
				sixteen := solicitedNode(a.Address).As16()
				groups[l.Name][fmt.Sprintf("%x", sixteen)] = true
			}
		}
	}
	answering := func() map[string]string {
		said := map[string]string{}
		for _, a := range w.speaker.Answering() {
			for _, l := range a.Links {
				said[fmt.Sprint(a.Address, " ", l.Name)] = l.MAC
			}
		}
		return said
	}
	for end := time.Now().Add(patience); !cmp.Equal(want, answering()) && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
	}
	if diff := cmp.Diff(want, answering()); diff != "" {
		w.Errorf("Answering (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, w.heard()); diff != "" {
		w.Errorf("answers on the wire (-want +got):\n%s", diff)
	}
	w.checkGroups(groups)
	if n, limit := w.node.packetSockets(), 3*kernelWalkLinks; n > limit {
		w.Errorf("%d sockets, want at most %d", n, limit)
	}
}

// heard asks on every link for every address.
func (w *kernelWalk) heard() map[string]string {
	out := map[string]string{}
	for i, name := range w.names {
		far := fmt.Sprint("far", i)
		for _, f := range families {
			st := newStation(w.far, far, f.clientIP, f.protocol.etherType())
			for j := range walkAddresses {
				if a := walkAddress(j); a.Is4() == f.vip.Is4() {
					st.send(st.question(a))
				}
			}
			w.settle(name, st)
			for j := range walkAddresses {
				for _, v := range st.answers(walkAddress(j)) {
					out[fmt.Sprint(walkAddress(j), " ", name)] += v.by.String()
				}
			}
		}
	}
	return out
}

// settle waits until whatever was going to be answered on a link was: the
// reader takes frames one after the other, and the answers come in that order.
func (w *kernelWalk) settle(name string, st *station) {
	var last netip.Addr
	for _, a := range w.speaker.Answering() {
		for _, l := range a.Links {
			if l.Name == name && a.Address.Is4() == st.ip.Is4() {
				last = a.Address
			}
		}
	}
	if last.IsValid() {
		eventually(w.T, "the last answer on "+name, func() bool { return len(st.answers(last)) > 0 })
	}
	time.Sleep(50 * time.Millisecond)
}

// checkGroups compares the groups that the kernel has for each link with those
// that it has without us.
func (w *kernelWalk) checkGroups(want map[string]map[string]bool) {
	before := map[string]map[string]bool{}
	for _, name := range w.names {
		before[name], _ = w.node.memberships(name)
	}
	w.speaker.Close()
	for _, name := range w.names {
		base, _ := w.node.memberships(name)
		ours := map[string]bool{}
		for g := range before[name] {
			if !base[g] {
				ours[g] = true
			}
		}
		if fmt.Sprint(ours) != fmt.Sprint(want[name]) {
			w.Errorf("%s is in the groups %v, want %v", name, ours, want[name])
		}
	}
	if n := w.node.packetSockets(); n != 0 {
		w.Errorf("%d sockets are left", n)
	}
}
