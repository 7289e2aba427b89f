package membership

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// Who was heard a moment ago remains a member for a moment, whatever others say.
// Who has been silent for as long as a detection takes is lost at once.
func TestWhoWasJustHeardIsDoubted(t *testing.T) {
	for _, detection := range []config.Detection{config.Rapid, config.Fast, config.LAN, config.WAN} {
		o := Options{Name: "a", Address: netip.MustParseAddr("192.0.2.1"), Port: 1, Label: "x", Detection: detection}
		c, err := settings(o)
		if err != nil {
			t.Fatal(err)
		}
		quickest := time.Duration(1+c.SuspicionMult) * c.ProbeInterval // from the last packet to the death
		for silence, want := range map[time.Duration]bool{0: true, quickest / 2: true, quickest - c.ProbeTimeout: false, quickest: false} {
			v := newView("a")
			v.fresh = freshness(c)
			v.join(node("b", metadata{life: 1, second: true}))
			if got := v.doubts("b", silence, time.Now()); got != want {
				t.Errorf("%s: said to be dead %s after its last packet: doubted is %v", detection, silence, got)
			}
		}
	}
}

// A doubted member that shows itself is as before; one that does not is lost,
// and its life has ended unless it has answered us lately.
func TestDoubtsEnd(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		what     string
		answered time.Time
		shown    bool
		want     error
	}{
		{"it shows itself", now, true, nil},
		{"it had answered", now, false, nil},
		{"it was only heard", time.Time{}, false, errDied},
	} {
		v := newView("a")
		v.fresh = time.Second
		for _, name := range []string{"b", "c", "d"} {
			v.join(node(name, metadata{life: 1, second: true}))
		}
		v.answered("b", c.answered)
		if !v.doubts("b", time.Second/4, now) || len(v.lapsed(now, false)) > 0 || !v.has("b") {
			t.Fatalf("%s: lost at once", c.what)
		}
		if c.shown && (!v.trusts("b") || v.trusts("b")) {
			t.Errorf("%s: the doubt does not end, or not for good", c.what)
		}
		if lost := v.lapsed(now.Add(3*time.Second/4), false); len(lost) == 0 != c.shown {
			t.Errorf("%s: lost are %v", c.what, lost)
		}
		if v.has("b") != c.shown {
			t.Errorf("%s: a member is %v", c.what, v.has("b"))
		}
		if err := v.refuse(node("b", metadata{life: 1, second: true}), now); !errors.Is(err, c.want) {
			t.Errorf("%s: when it is back: %v, want %v", c.what, err, c.want)
		}
	}
}

// A member that was cut off brings old news along: that another one, which lives,
// is dead. That one remains a member, and does not settle for it.
func TestOldNewsOfADeathChangeNothing(t *testing.T) {
	c := newCluster(t)
	c.detection = config.WAN
	said := &spy{}
	c.log = slog.New(said)
	c.know("a", "b", "c")
	died := make(chan string, 10)
	for _, name := range []string{"a", "b", "c"} {
		o := c.options(name)
		o.Keys = nil // in clear text, so that the test can speak for a
		o.Died = func() { died <- name }
		c.start(o)
	}
	c.converge()
	for said.times("member is said to be dead") == 0 {
		time.Sleep(time.Second) // in which each has been heard
		c.tell("c", deathOf("b", "a"))
		time.Sleep(100 * time.Millisecond)
	}
	c.eventually(func() string {
		v := c.live["c"].view
		v.mu.Lock()
		defer v.mu.Unlock()
		if p := v.live["b"]; p.doubt != nil {
			return "b is doubted"
		}
		return ""
	})
	c.converge()
	time.Sleep(3 * accuseEvery) // in which b would be told
	if lost := said.times("member lost"); lost > 0 || len(died) > 0 {
		t.Errorf("%d members were lost, %d take themselves for dead", lost, len(died))
	}
}

// spy is a log that counts messages.
type spy struct {
	mu   sync.Mutex
	said []string
}

func (s *spy) Enabled(context.Context, slog.Level) bool { return true }
func (s *spy) WithAttrs([]slog.Attr) slog.Handler       { return s }
func (s *spy) WithGroup(string) slog.Handler            { return s }

func (s *spy) Handle(_ context.Context, r slog.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said = append(s.said, r.Message)
	return nil
}

// times returns how many messages begin with a text.
func (s *spy) times(text string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, m := range s.said {
		if strings.HasPrefix(m, text) {
			n++
		}
	}
	return n
}

// deathOf is memberlist's message that a member is dead, by another one.
func deathOf(name, from string) []byte {
	text := func(s string) string { return string([]byte{0xa0 | byte(len(s))}) + s } // up to 31 letters
	const later = "\xcd\x03\xe8"                                                     // 1000: than all that the member has told
	return []byte("\x05\x83" + text("Incarnation") + later + text("Node") + text(name) + text("From") + text(from))
}

// tell sends a member a packet of memberlist's in clear text.
func (c *cluster) tell(name string, message []byte) {
	c.t.Helper()
	packet, err := memberlist.AddLabelHeaderToPacket(message, "test")
	if err != nil {
		c.t.Fatal(err)
	}
	conn, err := net.Dial("udp", netip.AddrPortFrom(c.peers[name], uint16(c.port)).String())
	if err != nil {
		c.t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write(packet); err != nil {
		c.t.Fatal(err)
	}
}
