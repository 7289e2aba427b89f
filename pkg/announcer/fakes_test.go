package announcer

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// world is a cluster that a test changes under a running announcer.
type world struct {
	mu    sync.Mutex
	state plan.Snapshot
	err   error
	asked int // how often a snapshot was taken
}

func (w *world) Snapshot() (plan.Snapshot, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked++
	if w.err != nil {
		return plan.Snapshot{}, w.err
	}
	s := w.state
	s.Members, s.Services = slices.Clone(s.Members), slices.Clone(s.Services)
	return s, nil
}

func (w *world) change(edit func(*plan.Snapshot)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	edit(&w.state)
}

func (w *world) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
}

func (w *world) members() []plan.Member {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state.Members
}

func (w *world) passes() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked
}

// wire is a speaker without a network. It answers for a yielded address as
// long as it did before and nobody took it over.
type wire struct {
	mu     sync.Mutex
	err    error
	stuck  bool // neither answers for new addresses nor says so
	answer []plan.Announcement
	events []string // starts and stops, in their order
}

func (w *wire) Set(_ context.Context, want []plan.Announcement) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil && want != nil {
		return w.err
	}
	var next []plan.Announcement
	for _, a := range want {
		was := w.answers(a.Address)
		if was || !a.Yield && !w.stuck {
			next = append(next, a)
		}
		if !was && !a.Yield && !w.stuck {
			w.events = append(w.events, "start "+a.Address.String())
		}
	}
	before := w.answer
	w.answer = next
	for _, a := range before {
		if !w.answers(a.Address) {
			w.events = append(w.events, "stop "+a.Address.String())
		}
	}
	return nil
}

func (w *wire) answers(address netip.Addr) bool {
	return slices.ContainsFunc(w.answer, func(a plan.Announcement) bool { return a.Address == address })
}

func (w *wire) Answering() []plan.Announcement {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.answer)
}

// takenOver is the wire seeing another node announce all that is yielded.
func (w *wire) takenOver() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = slices.DeleteFunc(w.answer, func(a plan.Announcement) bool {
		if a.Yield {
			w.events = append(w.events, "handed over "+a.Address.String())
		}
		return a.Yield
	})
}

func (w *wire) set(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
}

// String is what the wire answers for.
func (w *wire) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, a := range w.answer {
		text := a.Address.String()
		if a.Yield {
			text += " (yielding)"
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

func (w *wire) history() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.events, ", ")
}

// rig is a running announcer of node n1 with everything around it faked. It
// must be made inside a synctest bubble.
type rig struct {
	*Announcer
	world *world
	wire  *wire
	route *routers
	other Router // instead of route, if any
	end   context.CancelFunc
	done  chan error

	mu      sync.Mutex
	log     bytes.Buffer
	said    []State
	changes []plan.Change
}

// newRig makes a cluster of n1, n2 and n3, of which only n1 is simulated, with
// one Service on each of the addresses.
func newRig(t *testing.T, addresses ...string) *rig {
	t.Helper()
	c, err := config.Load([]byte(config.Smallest))
	if err != nil {
		t.Fatal(err)
	}
	link := plan.Link{Name: "eth0", Index: 2, Up: true, NodeIP: true, Default: true}
	s := plan.Snapshot{Node: "n1", Config: c, Links: []plan.Link{link}}
	for i := range 3 {
		name := fmt.Sprint("n", i+1)
		s.Nodes = append(s.Nodes, plan.Node{Name: name})
		s.Members = append(s.Members, plan.Member{Name: name, Rules: 2, Links: s.Links, Passive: i == 0})
	}
	for i, a := range addresses {
		s.Services = append(s.Services, plan.Service{
			Namespace: "shop", Name: fmt.Sprint("s", i), Allocated: true,
			Addresses: []netip.Addr{netip.MustParseAddr(a)}, Endpoints: plan.Endpoints{Ready: []string{"n3"}},
		})
	}
	return &rig{world: &world{state: s}, wire: &wire{}, route: &routers{}, done: make(chan error, 1)}
}

// routers are what this node speaks BGP with. Leaving them takes a while.
type routers struct {
	takes time.Duration // to leave

	mu   sync.Mutex
	want []plan.Peering
	sets int
	left bool // for good
}

func (r *routers) Set(want []plan.Peering) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.want, r.sets = want, r.sets+1
}

func (r *routers) Leave(ctx context.Context) {
	select {
	case <-time.After(r.takes):
	case <-ctx.Done():
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = true
}

// told returns what the routers are told, as text.
func (r *routers) told() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, p := range r.want {
		for _, route := range p.Routes {
			out = append(out, p.Peer.Name+" "+route.Prefix.String())
		}
	}
	return strings.Join(out, ", ")
}

// start runs the announcer; more speakers come before the rig's own.
func (r *rig) start(t *testing.T, more ...Speaker) {
	ctx, cancel := context.WithCancel(t.Context())
	r.end = cancel
	router := r.other
	if router == nil {
		router = r.route
	}
	r.Announcer = New(Options{
		Source: r.world, Speakers: append(more, r.wire), Router: router, Publish: r.publish, Observe: r.observe,
		Log: slog.New(slog.NewTextHandler(lockedWriter{r}, &slog.HandlerOptions{ReplaceAttr: withoutTime})),
	})
	go func() { r.done <- r.Run(ctx) }()
	synctest.Wait()
}

// publish is the gossip: it knows at once that n1 is not passive any more.
func (r *rig) publish(s State) {
	r.mu.Lock()
	r.said = append(r.said, s)
	r.mu.Unlock()
	r.world.change(func(w *plan.Snapshot) {
		if w.Members[0].Passive != s.Passive {
			w.Members = slices.Clone(w.Members)
			w.Members[0].Passive = s.Passive
			r.Kick()
		}
	})
}

func (r *rig) observe(p Pass) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes = append(r.changes, p.Changes...)
}

func (r *rig) lastSaid() State {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.said) == 0 {
		return State{Passive: true}
	}
	return r.said[len(r.said)-1]
}

// kickAndWait lets the announcer see the world, and settle.
func (r *rig) kickAndWait() {
	r.Kick()
	synctest.Wait()
}

// logged returns the lines logged since it was last called.
func (r *rig) logged() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	lines := strings.Split(strings.TrimSuffix(r.log.String(), "\n"), "\n")
	r.log.Reset()
	if len(lines) == 1 && lines[0] == "" {
		return nil
	}
	return lines
}

func (r *rig) observed() []plan.Change {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.changes
	r.changes = nil
	return out
}

type lockedWriter struct{ r *rig }

func (w lockedWriter) Write(b []byte) (int, error) {
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	return w.r.log.Write(b)
}

func withoutTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey || a.Key == "took" {
		return slog.Attr{}
	}
	return a
}

// lose takes members away.
func lose(names ...string) func(*plan.Snapshot) {
	return func(s *plan.Snapshot) {
		s.Members = slices.DeleteFunc(slices.Clone(s.Members), func(m plan.Member) bool { return slices.Contains(names, m.Name) })
	}
}
