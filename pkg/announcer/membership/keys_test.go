package membership

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
	"github.com/ccm-baremetal/ccm-baremetal/test/wire"
)

func secrets(texts ...string) [][]byte {
	var out [][]byte
	for _, text := range texts {
		out = append(out, []byte(text))
	}
	return out
}

func mustDerive(t *testing.T, texts ...string) []key {
	t.Helper()
	out, err := derive(secrets(texts...))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// signs returns which of the secrets signs.
func (k *keys) signs(t *testing.T, texts ...string) string {
	t.Helper()
	for i, one := range mustDerive(t, texts...) {
		if bytes.Equal(k.ring.GetPrimaryKey(), one.bytes) {
			return texts[i]
		}
	}
	return "none of them"
}

// accepts returns which of the secrets are accepted, by memberlist and by the door.
func (k *keys) accepts(t *testing.T, texts ...string) string {
	t.Helper()
	out := ""
	for i, one := range mustDerive(t, texts...) {
		ring := false
		for _, b := range k.ring.GetKeys() {
			ring = ring || bytes.Equal(b, one.bytes)
		}
		nonce := make([]byte, 12)
		packet := one.aead.Seal(append([]byte{1}, nonce...), nonce, []byte("ping"), []byte("label"))
		if door := k.authentic(packet, []byte("label")); door != ring {
			t.Errorf("%s: the ring takes it: %v, the door: %v", texts[i], ring, door)
		}
		if k.authentic(packet, []byte("another label")) {
			t.Errorf("%s: taken with another label", texts[i])
		}
		if ring {
			out += texts[i] + " "
		}
	}
	return strings.TrimSpace(out)
}

func TestAKeySignsOnlyWhenAllHoldIt(t *testing.T) {
	all := []string{"old", "new", "third"}
	now := time.Now()
	k, err := newKeys(secrets("old"))
	if err != nil {
		t.Fatal(err)
	}
	old, both := k.holds(), ""
	steps := []struct {
		what      string
		set       []string // nil: as before
		after     time.Duration
		holdings  []string // of the others: old or both
		signs     string
		accepts   string
		unpending bool
	}{
		{"at first", nil, 0, []string{"old", "old"}, "old", "old", true},
		{"a new one comes", []string{"new", "old"}, 0, []string{"old", "old"}, "old", "old new", false},
		{"one other has it", nil, time.Second, []string{"both", "old"}, "old", "old new", false},
		{"nobody else is there", nil, time.Second, nil, "old", "old new", false},
		{"one says nothing", nil, time.Second, []string{"both", ""}, "old", "old new", false},
		{"all have it", nil, time.Second, []string{"both", "both"}, "new", "old new", true},
		{"the old one is taken away", []string{"new"}, time.Second, []string{"both", "both"}, "new", "old new", false},
		{"a while later", nil, keyGrace - time.Second, []string{"both"}, "new", "old new", false},
		{"ten minutes later", nil, time.Second, []string{"both"}, "new", "new", true},
		{"it is replaced by another at once", []string{"third"}, time.Second, []string{"both"}, "new", "new third", false},
		{"for ten minutes somebody has not got it", nil, keyGrace, []string{"both"}, "third", "third", true},
	}
	for _, s := range steps {
		now = now.Add(s.after)
		if s.set != nil {
			if err := k.set(mustDerive(t, s.set...), now); err != nil {
				t.Fatal(err)
			}
			if both == "" {
				both = k.holds()
			}
		}
		var holdings []string
		for _, h := range s.holdings {
			holdings = append(holdings, map[string]string{"old": old, "both": both}[h])
		}
		if _, err := k.review(holdings, now); err != nil {
			t.Fatal(err)
		}
		if got := k.signs(t, all...); got != s.signs {
			t.Errorf("%s: %s signs, want %s", s.what, got, s.signs)
		}
		if got := k.accepts(t, all...); got != s.accepts {
			t.Errorf("%s: accepts %s, want %s", s.what, got, s.accepts)
		}
		if k.pending() == s.unpending {
			t.Errorf("%s: pending is %v", s.what, k.pending())
		}
	}
}

// TestWhoStartsSignsWithTheOldestKey: the others may not have read the new one.
func TestWhoStartsSignsWithTheOldestKey(t *testing.T) {
	k, err := newKeys(secrets("new", "middle", "old"))
	if err != nil {
		t.Fatal(err)
	}
	if got := k.signs(t, "new", "middle", "old"); got != "old" {
		t.Errorf("%s signs", got)
	}
	// And one in the middle of the ring can be dropped.
	now := time.Now()
	if err := k.set(mustDerive(t, "new", "old"), now); err != nil {
		t.Fatal(err)
	}
	if _, err := k.review(nil, now.Add(keyGrace)); err != nil {
		t.Fatal(err)
	}
	if got := k.accepts(t, "new", "middle", "old"); got != "new old" {
		t.Errorf("accepts %s", got)
	}
	if got := k.signs(t, "new", "middle", "old"); got != "old" {
		t.Errorf("%s signs", got)
	}
}

func TestSameSecretTwiceIsOneKey(t *testing.T) {
	if got := mustDerive(t, "a", "b", "a"); len(got) != 2 {
		t.Errorf("%d keys", len(got))
	}
}

// TestW25KeyOfAShortSecretIsNoneOfItsBytes: the key is derived by a real hash.
func TestW25KeyOfAShortSecretIsNoneOfItsBytes(t *testing.T) {
	a, b := mustDerive(t, "a")[0], mustDerive(t, "b")[0]
	same := 0
	for i := range a.bytes {
		if a.bytes[i] == b.bytes[i] {
			same++
		}
	}
	if len(a.bytes) != 32 || same > 4 || bytes.Contains(a.bytes, []byte(a.id)) {
		t.Errorf("%d bytes, %d of them as with another secret", len(a.bytes), same)
	}
}

// TestB109RotationNeverSeparatesMembers: the Secret changes and reaches one
// member after the other, with a restart in between; nobody is lost.
func TestB109RotationNeverSeparatesMembers(t *testing.T) {
	c := newCluster(t)
	c.detection = config.LAN
	var log wire.Log
	c.log = slog.New(slog.NewTextHandler(&log, nil))
	c.startAll("a", "b", "c", "d")
	for round, next := range [][][]byte{
		secrets("second", "a secret"), // the new one signs when all have it
		secrets("second"),             // the old one is taken away
		secrets("third"),              // replaced at once, as somebody does who has not read the manual
	} {
		for i, name := range c.names() {
			if err := c.live[name].SetKeys(next); err != nil {
				t.Fatal(err)
			}
			time.Sleep(150 * time.Millisecond) // longer than it takes to look at the keys
			if round == 0 && i == 1 {
				c.leave("d")
				o := c.options("d")
				o.Keys = next
				c.start(o)
				c.converge()
			}
		}
		c.eventually(func() string {
			for name, r := range c.live {
				if r.keys.signs(t, string(next[0])) == "none of them" {
					return name + " does not sign with the new key"
				}
			}
			return ""
		})
		c.converge()
	}
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "member lost") && !strings.Contains(line, "member=d") { // its good-bye may be overtaken
			t.Error(line)
		}
	}
	for name, r := range c.live {
		if n := r.Stats().Rejected; n > 0 {
			t.Errorf("%s has refused %d packets or connections", name, n)
		}
	}
}

func TestUselessKeysAreRefused(t *testing.T) {
	c := newCluster(t)
	c.startAll("a", "b")
	for _, bad := range [][][]byte{nil, {}, {[]byte{}}, make([][]byte, maxKeys+1)} {
		if err := c.live["a"].SetKeys(bad); err == nil {
			t.Errorf("%d keys are taken", len(bad))
		}
	}
	if got := c.live["a"].keys.accepts(t, "a secret"); got != "a secret" {
		t.Errorf("accepts %q", got)
	}
	o := c.options("clear")
	o.Keys = nil
	m, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	c.run(m)
	if err := m.SetKeys(secrets("a secret")); err == nil {
		t.Error("a membership in clear text takes a key")
	}
}

// TestPacketsAreCountedByTheDoor: refusals are counted exactly, not by what is
// logged of them.
func TestPacketsAreCountedByTheDoor(t *testing.T) {
	c := newCluster(t)
	c.startAll("a")
	a := c.live["a"]
	one := mustDerive(t, "a secret")[0]
	other := mustDerive(t, "another secret")[0]
	seal := func(k key, label string) []byte {
		nonce := make([]byte, 12)
		return k.aead.Seal(append([]byte{1}, nonce...), nonce, []byte{0xff}, []byte(label))
	}
	labelled := func(label string, payload []byte) []byte {
		return append(append([]byte{244, byte(len(label))}, label...), payload...)
	}
	for i, c := range []struct {
		packet []byte
		want   string
	}{
		{labelled("test", seal(one, "test")), ""},
		{labelled("test", seal(other, "test")), wrongKey},
		{labelled("test", []byte("clear text, as if")), wrongKey},
		{labelled("test", nil), wrongKey},
		{labelled("else", seal(one, "else")), foreignLabel},
		{labelled("test", seal(one, "else")), wrongKey},
		{seal(one, ""), foreignLabel},
		{[]byte{244}, foreignLabel},
		{[]byte{244, 200, 'x'}, foreignLabel},
		{nil, foreignLabel},
	} {
		if got := a.door.refuses(c.packet); got != c.want {
			t.Errorf("packet %d: %q, want %q", i, got, c.want)
		}
	}
	before := a.Stats().Rejected
	for range 10 {
		a.refused(addressOf(node("b", metadata{})), wrongKey)
	}
	if got := a.Stats().Rejected - before; got != 10 {
		t.Errorf("%d refusals are counted, want 10", got)
	}
}

func FuzzDoor(f *testing.F) {
	k, err := newKeys(secrets("a secret"))
	if err != nil {
		f.Fatal(err)
	}
	g := &guard{keys: k, label: "test"}
	f.Add([]byte{244, 4, 't', 'e', 's', 't', 1})
	f.Fuzz(func(t *testing.T, packet []byte) {
		if cause := g.refuses(packet); cause == "" {
			t.Errorf("%v is let in", packet)
		}
	})
}

func TestHoldingsAreReadOneByOne(t *testing.T) {
	for held, want := range map[string]bool{"": false, "abcd": true, "xxxxabcd": true, "xabcdxxx": false, "abc": false} {
		if got := contains(held, "abcd"); got != want {
			t.Errorf("%q: %v", held, got)
		}
	}
}
