package bgp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	wire "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// onLoopback connects as Dial does, and gives the session next hops, which
// the loopback has none of.
func onLoopback(ctx context.Context, target bgp.Target) (bgp.Transport, error) {
	via, err := bgp.Dial(ctx, target)
	via.IPv4, via.IPv6 = netip.MustParseAddr("192.0.2.11"), netip.MustParseAddr("2001:db8::11")
	return via, err
}

func newSpeaker(t testing.TB, dial func(context.Context, bgp.Target) (bgp.Transport, error)) *bgp.Speaker {
	var w io.Writer = io.Discard
	if testing.Verbose() {
		w = os.Stderr
	}
	s := bgp.New(bgp.Options{
		Node: "n1", Dial: dial, Log: slog.New(slog.NewTextHandler(w, nil)),
		Password: func(context.Context, string) (string, error) { return "", errors.New("the API server is away") },
	})
	t.Cleanup(s.Close)
	return s
}

// to is a peering with a router by hand.
func (r *router) to(edit func(*config.Peer), prefixes ...string) plan.Peering {
	return peering("r1", "127.0.0.1", func(p *config.Peer) {
		r.peer(p)
		if edit != nil {
			edit(p)
		}
	}, prefixes...)
}

func internal(p *config.Peer) { p.ASN = 64500 }

func TestB132LocalPreferenceIsForInternalPeersOnly(t *testing.T) {
	outside := newRouter(t, nil)
	inside := newRouter(t, func(r *router) { r.asn = 64500 })
	s := newSpeaker(t, onLoopback)
	preferred := func(w plan.Peering) plan.Peering {
		w.Routes[1].LocalPref = 200
		return w
	}
	out := preferred(outside.to(both, "198.51.100.1/32", "2001:db8:1::1/128"))
	in := preferred(inside.to(func(p *config.Peer) { internal(p); both(p) }, "198.51.100.1/32", "2001:db8:1::1/128"))
	in.Peer.Name = "r2"
	s.Set([]plan.Peering{out, in})
	for prefix, got := range outside.waitTable(2) {
		if got.localPref != nil || !slices.Equal(got.path, []uint32{64500}) {
			t.Errorf("%s: the external router was told %+v", prefix, got)
		}
	}
	table := inside.waitTable(2)
	for prefix, want := range map[string]uint32{"198.51.100.1/32": 100, "2001:db8:1::1/128": 200} {
		if got := table[prefix]; got.localPref == nil || *got.localPref != want || got.path != nil {
			t.Errorf("%s: the internal router was told %+v, want preference %d", prefix, got, want)
		}
	}
}

func TestB119RoutersWithShortNumbersGetPathsTheyCanRead(t *testing.T) {
	for _, test := range []struct {
		ours uint32
		open uint16
		path []byte // attributes as they are on the wire
	}{
		{64500, 64500, []byte{0x40, byte(wire.BGP_ATTR_TYPE_AS_PATH), 4, wire.BGP_ASPATH_ATTR_TYPE_SEQ, 1, 64500 >> 8, 64500 & 0xff}},
		{65540, 23456, []byte{0x40, byte(wire.BGP_ATTR_TYPE_AS_PATH), 4, wire.BGP_ASPATH_ATTR_TYPE_SEQ, 1, 23456 >> 8, 23456 & 0xff}},
		{65540, 23456, []byte{0xc0, byte(wire.BGP_ATTR_TYPE_AS4_PATH), 6, wire.BGP_ASPATH_ATTR_TYPE_SEQ, 1, 0, 1, 0, 4}},
	} {
		r := newRouter(t, func(r *router) { r.narrow = true })
		s := newSpeaker(t, onLoopback)
		s.Set([]plan.Peering{r.to(func(p *config.Peer) { p.LocalASN = test.ours }, "198.51.100.1/32")})
		eventually(t, func() error {
			if n, _ := r.counts(); n == 0 {
				return errors.New("no UPDATE yet")
			}
			return nil
		})
		r.mu.Lock()
		if r.opens[0].MyAS != test.open || !bytes.Contains(r.updates[0], test.path) {
			t.Errorf("AS %d: OPEN with %d, UPDATE %x, want %x in it", test.ours, r.opens[0].MyAS, r.updates[0], test.path)
		}
		r.mu.Unlock()
	}
}

func TestCommunitiesAreSentAndChangesReplaceInPlace(t *testing.T) {
	r := newRouter(t, nil)
	s := newSpeaker(t, onLoopback)
	w := r.to(nil, "198.51.100.1/32", "198.51.100.2/32")
	s.Set([]plan.Peering{w})
	r.waitTable(2)
	before, _ := r.counts()
	changed := r.to(nil, "198.51.100.1/32", "198.51.100.2/32")
	changed.Routes[0].Communities = []config.Community{{Global: 65000, Local1: 1}, {Global: 65535, Local1: 65281}, {Large: true, Global: 1, Local1: 2, Local2: 3}}
	s.Set([]plan.Peering{changed})
	eventually(t, func() error {
		got := r.table()["198.51.100.1/32"]
		if !strings.Contains(got.communities, "65000:1") || !strings.Contains(got.communities, "65535:65281") || !strings.Contains(got.large, "1:2:3") {
			return fmt.Errorf("got %+v", got)
		}
		return nil
	})
	if after, _ := r.counts(); after != before+1 {
		t.Errorf("%d UPDATEs for one change", after-before)
	}
	s.Set([]plan.Peering{changed})
	r.quiet(500 * time.Millisecond)
}

// All routers of the reference get one message for each prefix, and withdrawals
// that are too long for one are sent all the same.
func TestTenThousandPrefixesShareMessagesThatFit(t *testing.T) {
	r := newRouter(t, nil)
	s := newSpeaker(t, onLoopback)
	var prefixes []string
	for i := range 10_000 {
		prefixes = append(prefixes, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 32).String())
	}
	began := time.Now()
	s.Set([]plan.Peering{r.to(both, prefixes...)})
	eventually(t, func() error {
		if _, ends := r.counts(); ends != 2 {
			return fmt.Errorf("%d End-of-RIB, want one for each family", ends)
		}
		return nil
	})
	t.Logf("10,000 prefixes took %s", time.Since(began))
	if table := r.table(); len(table) != 10_000 {
		t.Errorf("%d prefixes", len(table))
	}
	if n, _ := r.counts(); n > 15 {
		t.Errorf("%d UPDATEs", n)
	}
	before, _ := r.counts()
	s.Set([]plan.Peering{r.to(both)})
	r.waitTable(0)
	if after, _ := r.counts(); after-before > 15 {
		t.Errorf("%d UPDATEs to withdraw", after-before)
	}
}

func TestSilentRouterIsGivenUpAfterTheHoldTime(t *testing.T) {
	t.Parallel()
	r := newRouter(t, func(r *router) { r.hold = 3 })
	s := newSpeaker(t, onLoopback)
	s.Set([]plan.Peering{r.to(nil, "198.51.100.1/32")})
	r.waitNotified(wire.BGP_ERROR_HOLD_TIMER_EXPIRED, 0)
	eventually(t, func() error {
		if why := s.Sessions()[0].Why; !strings.Contains(why, "silent for the hold time of 3s") && s.Sessions()[0].Times < 2 {
			return fmt.Errorf("why: %q", why)
		}
		return nil
	})
}

func TestOpensOfTheWrongRouterAreRefused(t *testing.T) {
	for name, test := range map[string]struct {
		router  func(*router)
		peer    func(*config.Peer)
		subcode uint8
		why     string
	}{
		"other AS":          {func(r *router) { r.asn = 64999 }, nil, wire.BGP_ERROR_SUB_BAD_PEER_AS, "the router has AS 64999, not 64501"},
		"not internal":      {nil, func(p *config.Peer) { p.ASN, p.Kind = 0, config.Internal }, wire.BGP_ERROR_SUB_BAD_PEER_AS, "which is not ours"},
		"not external":      {func(r *router) { r.asn = 64500 }, func(p *config.Peer) { p.ASN, p.Kind = 0, config.External }, wire.BGP_ERROR_SUB_BAD_PEER_AS, "our own AS"},
		"short hold time":   {func(r *router) { r.hold = 2 }, nil, wire.BGP_ERROR_SUB_UNACCEPTABLE_HOLD_TIME, "hold time of 2s"},
		"no router ID":      {func(r *router) { r.id = netip.MustParseAddr("0.0.0.0") }, nil, wire.BGP_ERROR_SUB_BAD_BGP_IDENTIFIER, "no router ID"},
		"our own router ID": {func(r *router) { r.asn, r.id = 64500, netip.MustParseAddr("10.9.9.9") }, func(p *config.Peer) { internal(p); p.RouterID = netip.MustParseAddr("10.9.9.9") }, wire.BGP_ERROR_SUB_BAD_BGP_IDENTIFIER, "has our router ID"},
		"no family":         {func(r *router) { r.families = []wire.Family{wire.RF_IPv6_UC} }, nil, wire.BGP_ERROR_SUB_UNSUPPORTED_CAPABILITY, "speaks none of the families"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRouter(t, test.router)
			s := newSpeaker(t, onLoopback)
			s.Set([]plan.Peering{r.to(test.peer)})
			r.waitNotified(wire.BGP_ERROR_OPEN_MESSAGE_ERROR, test.subcode)
			eventually(t, func() error {
				if why := s.Sessions()[0].Why; !strings.Contains(why, test.why) {
					return fmt.Errorf("why: %q, want %q", why, test.why)
				}
				return nil
			})
		})
	}
}

func TestB121RouterIDsComeFromTheNodesName(t *testing.T) {
	seen := map[netip.Addr]string{}
	for i := range 200 {
		node := fmt.Sprintf("n%d", i)
		for range 2 { // after a restart too
			s := bgp.New(bgp.Options{Node: node, Dial: func(ctx context.Context, _ bgp.Target) (bgp.Transport, error) {
				<-ctx.Done()
				return bgp.Transport{}, ctx.Err()
			}, Log: slog.New(slog.DiscardHandler)})
			s.Set([]plan.Peering{peering("r1", "2001:db8::1", nil)})
			id := s.Sessions()[0].RouterID
			if other, taken := seen[id]; taken && other != node || !id.Is4() || id.IsUnspecified() || id.IsMulticast() {
				t.Errorf("%s has %s, as %s", node, id, other)
			}
			seen[id] = node
			s.Close()
		}
	}
}

func TestRoutesOfTheRouterAreDroppedUnread(t *testing.T) {
	r := newRouter(t, nil)
	s := newSpeaker(t, onLoopback)
	s.Set([]plan.Peering{r.to(nil, "198.51.100.1/32")})
	r.waitTable(1)
	garbage := []byte{0, 0, 0, 3, 0xff, 0xff, 0xff} // an UPDATE that no parser likes
	message := append(slices.Repeat([]byte{0xff}, 16), 0, byte(19+len(garbage)), wire.BGP_MSG_UPDATE)
	r.mu.Lock()
	conn := r.conn
	r.mu.Unlock()
	for range 1000 {
		if _, err := conn.Write(append(message, garbage...)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func() error {
		if got := s.Sessions()[0].UpdatesReceived; got != 1000 {
			return fmt.Errorf("%d received", got)
		}
		return nil
	})
	if s.Sessions()[0].State != bgp.Established || r.endings() != 0 {
		t.Errorf("got %+v", s.Sessions()[0])
	}
}

func TestRouteRefreshBringsEverythingAgain(t *testing.T) {
	r := newRouter(t, nil)
	s := newSpeaker(t, onLoopback)
	s.Set([]plan.Peering{r.to(nil, "198.51.100.1/32", "198.51.100.2/32")})
	r.waitTable(2)
	before, _ := r.counts()
	if err := r.write(wire.NewBGPRouteRefreshMessage(wire.AFI_IP, 0, wire.SAFI_UNICAST)); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if n, _ := r.counts(); n != before+1 {
			return fmt.Errorf("%d UPDATEs", n-before)
		}
		return nil
	})
}

func TestGarbageEndsTheSessionWithAWord(t *testing.T) {
	r := newRouter(t, nil)
	s := newSpeaker(t, onLoopback)
	s.Set([]plan.Peering{r.to(nil)})
	waitState(t, s, bgp.Established, "")
	r.mu.Lock()
	conn := r.conn
	r.mu.Unlock()
	if _, err := conn.Write(make([]byte, 19)); err != nil {
		t.Fatal(err)
	}
	r.waitNotified(wire.BGP_ERROR_MESSAGE_HEADER_ERROR, wire.BGP_ERROR_SUB_CONNECTION_NOT_SYNCHRONIZED)
}

// The end of a random walk is the state that was asked for last.
func TestWalkEndsWhereItShould(t *testing.T) {
	r := newRouter(t, nil)
	s := newSpeaker(t, onLoopback)
	var last []string
	for i := range 60 {
		last = nil
		for j := range 20 {
			if (i*7+j*13)%5 < 3 {
				last = append(last, fmt.Sprintf("198.51.100.%d/32", j))
			}
		}
		slices.SortFunc(last, func(a, b string) int {
			return plan.ComparePrefixes(netip.MustParsePrefix(a), netip.MustParsePrefix(b))
		})
		s.Set([]plan.Peering{r.to(nil, last...)})
		if i%17 == 0 {
			r.hangUp() // and all that has been told is void
			r.mu.Lock()
			r.updates = nil
			r.mu.Unlock()
		}
		time.Sleep(5 * time.Millisecond)
	}
	want := map[string]bool{}
	for _, p := range last {
		want[p] = true
	}
	eventually(t, func() error {
		got := map[string]bool{}
		for p := range r.table() {
			got[p] = true
		}
		if !reflect.DeepEqual(got, want) {
			return fmt.Errorf("got %v, want %v", got, want)
		}
		return nil
	})
}

func TestPasswordThatCannotBeReadOpensNothing(t *testing.T) {
	r := newRouter(t, nil)
	s := newSpeaker(t, onLoopback)
	s.Set([]plan.Peering{r.to(func(p *config.Peer) { p.PasswordSecret = "bgp" })})
	waitState(t, s, bgp.Idle, "the password: the API server is away")
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn != nil {
		t.Error("connected without the password")
	}
}

// The kernel drops what has come over more hops than allowed: on the loopback
// packets have a TTL of 64.
func TestB124PacketsFromTooFarAwayAreDropped(t *testing.T) {
	r := newRouter(t, nil)
	var p config.Peer
	r.peer(&p)
	for _, test := range []struct {
		minimum int
		up      bool
	}{{0, true}, {64, true}, {65, false}, {255, false}} {
		limit := time.Second
		if test.up {
			limit = patience
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		via, err := bgp.Dial(ctx, bgp.Target{Address: netip.MustParseAddr("127.0.0.1"), Port: p.Port, TTL: 255, MinimumTTL: test.minimum})
		cancel()
		if (err == nil) != test.up {
			t.Errorf("at least %d: %v", test.minimum, err)
		}
		if err == nil {
			via.Close()
		}
	}
}
