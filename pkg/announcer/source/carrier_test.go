package source

import (
	"encoding/binary"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// A story of one link, a word for each second: what a reading finds (up, down,
// gone), with ! if a message told that it was down in between. Below it what
// counts.
func TestCarrierCountsAfterAWhile(t *testing.T) {
	for name, story := range map[string][2]string{
		"up at the start":                  {"up up up", "up up up"},
		"down at the start":                {"down down up up", "down down up up"},
		"lost and back":                    {"up down up up up up up up up", "up down down down down down down up up"},
		"lost and back for a moment":       {"up down up up down up up up up up up", "up down down down down down down down down down up"},
		"a flap that no reading has found": {"up up! up up up up up up", "up down down down down down up up"},
		"a flap while it is waited for":    {"up down up up up! up up up up up", "up down down down down down down down down up"},
		"made, and reported before it is up": {
			"down up! up up", "down up up up"},
		"first seen after it was set up": {"gone up! up", "gone up up"},
		"replaced by another":            {"up down gone up up", "up down gone up up"},
	} {
		t.Run(name, func(t *testing.T) {
			c, now := carriers{}, time.Unix(0, 0)
			var got []string
			for word := range strings.FieldsSeq(story[0]) {
				table := &linkTable{}
				state, told := strings.CutSuffix(word, "!")
				if state != "gone" {
					table.links = []link{{Link: plan.Link{Index: 7, Up: state == "up"}}}
				}
				wake := c.settle(table, map[int]bool{7: told}, now)
				got = append(got, said(table))
				if waits := got[len(got)-1] == "down" && state == "up"; waits == wake.IsZero() {
					t.Errorf("at %s: to be looked at again at %s", now.Sub(time.Unix(0, 0)), wake)
				}
				now = now.Add(time.Second)
			}
			if s := strings.Join(got, " "); s != story[1] {
				t.Errorf("%s\nis %s\nwant %s", story[0], s, story[1])
			}
			if len(c) > 1 {
				t.Errorf("%d links are remembered", len(c))
			}
		})
	}
}

func said(table *linkTable) string {
	switch {
	case len(table.links) == 0:
		return "gone"
	case table.links[0].Up:
		return "up"
	}
	return "down"
}

// newLinkMessage is the fixed part of what the kernel tells of a link.
func newLinkMessage(index int, flags uint32) syscall.NetlinkMessage {
	data := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(data[4:], uint32(index))
	binary.NativeEndian.PutUint32(data[8:], flags)
	return syscall.NetlinkMessage{Header: syscall.NlMsghdr{Type: unix.RTM_NEWLINK}, Data: data}
}

func TestMessagesThatALinkIsDown(t *testing.T) {
	other, short := newLinkMessage(2, 0), newLinkMessage(2, 0)
	other.Header.Type = unix.RTM_NEWADDR
	short.Data = short.Data[:unix.SizeofIfInfomsg-1]
	for name, c := range map[string]struct {
		message syscall.NetlinkMessage
		want    bool
	}{
		"up":              {newLinkMessage(2, usual), false},
		"set down":        {newLinkMessage(2, usual&^unix.IFF_UP), true},
		"no carrier":      {newLinkMessage(2, usual&^unix.IFF_LOWER_UP), true},
		"not operational": {newLinkMessage(2, usual&^unix.IFF_RUNNING), true},
		"of an address":   {other, false},
		"too short":       {short, false},
	} {
		if index, down := dropped(c.message); down != c.want || down && index != 2 {
			t.Errorf("%s: link %d is down: %v, want %v", name, index, down, c.want)
		}
	}
}

// Whatever a message holds, it is read without a fault and changes nothing but
// which links are taken for down.
func FuzzLinkMessage(f *testing.F) {
	f.Add(uint16(unix.RTM_NEWLINK), newLinkMessage(2, usual).Data)
	f.Add(uint16(unix.RTM_NEWLINK), newLinkMessage(-1, 0).Data)
	f.Add(uint16(unix.RTM_NEWLINK), []byte{1, 2, 3})
	f.Add(uint16(unix.RTM_DELLINK), newLinkMessage(2, 0).Data)
	f.Fuzz(func(t *testing.T, kind uint16, data []byte) {
		var d drops
		d.note([]syscall.NetlinkMessage{{Header: syscall.NlMsghdr{Type: kind}, Data: data}})
		noted := d.take()
		if len(noted) > 1 || len(noted) == 1 && (kind != unix.RTM_NEWLINK || len(data) < unix.SizeofIfInfomsg) {
			t.Errorf("noted %v", noted)
		}
		if len(d.take()) > 0 {
			t.Error("noted twice")
		}
	})
}

// Nobody tells when the five seconds are over.
func TestReturningLinkCountsWithoutANews(t *testing.T) {
	withLinks(t, func(t *testing.T, k *fakeKernel, l *Links, _ *journal, kicks *atomic.Int64) {
		up := func() bool {
			table, err := l.current()
			return err == nil && table.links[0].Up
		}
		steps := []struct {
			down bool
			wait time.Duration
			want bool
		}{
			{false, time.Second, true},
			{true, time.Second, false},
			{false, linkReturn - 100*time.Millisecond, false},
			{false, 200 * time.Millisecond, true},
		}
		for i, s := range steps {
			k.carrier(!s.down)
			time.Sleep(s.wait)
			synctest.Wait()
			if up() != s.want {
				t.Errorf("step %d: up %v, want %v", i, up(), s.want)
			}
		}
		if n := kicks.Load(); n != 3 {
			t.Errorf("%d kicks, want one for each change", n)
		}
		before := k.count(&k.readings)
		time.Sleep(time.Hour)
		if n := k.count(&k.readings) - before; n != 0 {
			t.Errorf("%d readings at rest", n)
		}
	})
}
