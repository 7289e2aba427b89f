package frrcluster_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// What is heard meanwhile is no reason to try again: neither what frr-k8s tells
// of sessions, nor the same wish once more, nor what others do to the object.
func TestNewsDoNotHurryAttempts(t *testing.T) {
	want := []plan.Peering{peering(nil, "198.51.100.1/32")}
	for name, c := range map[string]struct {
		begin func(*fakeAPI)
		news  func(*fakeAPI, func([]plan.Peering), int)
		most  int // attempts in five minutes: 8 in the first two, and one each 45 s
	}{
		"sessions": {
			func(*fakeAPI) {},
			func(a *fakeAPI, _ func([]plan.Peering), i int) {
				a.put(sessionPath, session([]string{"Active", "Connect"}[i%2], "N/A"))
			}, 16,
		},
		"the same again": {
			func(*fakeAPI) {},
			func(_ *fakeAPI, set func([]plan.Peering), _ int) { set(want) }, 16,
		},
		"the object of another writer": {
			func(a *fakeAPI) { foreign(a, -1) },
			func(a *fakeAPI, _ func([]plan.Peering), i int) { foreign(a, i) }, 16,
		},
		"another wish each time": {
			func(*fakeAPI) {},
			func(_ *fakeAPI, set func([]plan.Peering), i int) {
				set([]plan.Peering{peering(nil, fmt.Sprintf("198.51.100.%d/32", i%200))})
			}, 5*60*4/3 + 1, // one each second, less what jitter takes
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newAPI(true)
				c.begin(api)
				api.set(func() { api.refuse = errors.New("different asns") })
				s := newSpeaker(t, api)
				s.Set(want)
				for i := range 5 * 60 * 10 {
					time.Sleep(100 * time.Millisecond)
					c.news(api, s.Set, i)
				}
				if n := len(api.written()); n < 8 || n > c.most {
					t.Errorf("%d attempts in five minutes, want 8 to %d", n, c.most)
				}
				if all := s.Sessions(); len(all) != 1 || !strings.Contains(all[0].Why, "different asns") {
					t.Errorf("got %+v", all)
				}
				s.Close()
			})
		})
	}
}

// foreign makes the object what somebody else wants.
func foreign(a *fakeAPI, i int) {
	a.put(own, map[string]any{
		"metadata": map[string]any{"name": "ccm-baremetal-n1", "uid": "u-2"},
		"spec":     map[string]any{"bgp": map[string]any{"routers": []any{map[string]any{"asn": 1 + i%2}}}},
	})
}

// What a new document asks for may be taken, and is tried within a second.
func TestAnotherWishIsTriedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(true)
		api.set(func() { api.refuse = errors.New("different asns") })
		s := newSpeaker(t, api)
		s.Set([]plan.Peering{peering(nil, "198.51.100.1/32")})
		time.Sleep(10 * time.Minute)
		api.set(func() { api.refuse = nil })
		s.Set([]plan.Peering{peering(nil, "198.51.100.2/32")})
		time.Sleep(time.Second)
		if text := api.text(own); !strings.Contains(text, "198.51.100.2/32") {
			t.Errorf("after a second there is %q", text)
		}
		s.Close()
	})
}

// Two writers that do not agree do not write as fast as they can.
func TestAnObjectThatOthersChangeAgainAndAgainIsRepairedSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(true)
		s := newSpeaker(t, api)
		s.Set([]plan.Peering{peering(nil, "198.51.100.1/32")})
		time.Sleep(time.Minute)
		told := false
		for i := range 10 * 60 * 10 {
			foreign(api, i)
			time.Sleep(100 * time.Millisecond)
			told = told || strings.Contains(s.Sessions()[0].Why, "somebody else changes it again and again")
		}
		if n := len(api.written()); n < 25 || n > 1+5*11 {
			t.Errorf("wrote %d times in ten minutes", n)
		}
		if !told {
			t.Error("the session does not say that somebody else changes the object")
		}
		time.Sleep(2 * time.Minute)
		api.waitText(t, own, "198.51.100.1/32")
		waitSession(t, s, bgp.Idle, "frr-k8s says nothing of this node")
		s.Close()
	})
}

// A node that gets other routers, under another number of ours, takes leave of
// the old ones first: FRR has one number, and would cut them off.
func TestSessionsOfAnotherRouterWaitForThoseThatLeave(t *testing.T) {
	for name, edit := range map[string]func(*config.Peer){
		"another AS number of ours": func(p *config.Peer) { p.LocalASN = 64600 },
		"another router ID":         func(p *config.Peer) { p.RouterID = netip.MustParseAddr("10.0.0.9") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newAPI(true)
				s := newSpeaker(t, api)
				old := peering(nil, "198.51.100.1/32")
				next := peering(func(p *config.Peer) {
					p.Name, p.Address = "r2", p.Address.Next()
					edit(p)
				}, "198.51.100.2/32")
				s.Set([]plan.Peering{old})
				time.Sleep(time.Minute)
				s.Set([]plan.Peering{next})
				time.Sleep(9 * time.Second)
				api.waitText(t, own, `"address":"192.0.2.1"`, shutdown, "!192.0.2.2\"")
				if all := s.Sessions(); len(all) != 2 || !strings.HasPrefix(all[1].Why, "begins when those have left") {
					t.Errorf("got %+v", all)
				}
				time.Sleep(2 * time.Second)
				api.waitText(t, own, `"address":"192.0.2.2"`, "198.51.100.2/32", "!192.0.2.1\"")
				if w := api.written(); len(w) != 3 {
					t.Errorf("wrote %v", w)
				}
				s.Close()
			})
		})
	}
}

// With the number of the document all sessions are other ones. That one of them
// has nothing to take leave of does not cut the others short.
func TestAnotherASNumberCutsNoLeaveShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(true)
		s := newSpeaker(t, api)
		all := func(edit func(*config.Peer)) []plan.Peering {
			second := func(p *config.Peer) {
				p.Name, p.Address, p.ASN = "r2", p.Address.Next(), 64500
				edit(p)
			}
			return []plan.Peering{peering(edit, "198.51.100.1/32"), peering(second)} // an external one, and an internal one without routes
		}
		s.Set(all(func(*config.Peer) {}))
		time.Sleep(time.Minute)
		s.Set(all(func(p *config.Peer) { p.LocalASN = 64600 }))
		time.Sleep(9 * time.Second)
		api.waitText(t, own, `"asn":64500,"neighbors":[{"address":"192.0.2.1"`, shutdown, "!64600")
		time.Sleep(12 * time.Second)
		api.waitText(t, own, `"asn":64600`, "192.0.2.1\"", "192.0.2.2\"", "!"+shutdown)
		s.Close()
	})
}

// What never began has nothing to take leave of.
func TestASessionThatWaitsAndIsNotWantedAnyMoreIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(true)
		s := newSpeaker(t, api)
		other := peering(func(p *config.Peer) { p.Name, p.Address, p.LocalASN = "r2", p.Address.Next(), 64600 }, "198.51.100.2/32")
		s.Set([]plan.Peering{peering(nil, "198.51.100.1/32")})
		time.Sleep(time.Minute)
		s.Set([]plan.Peering{other})
		time.Sleep(time.Second)
		if took := end(t, s.Leave); took < 11*time.Second || took > 13*time.Second {
			t.Errorf("the leave of the first took %s more", took)
		}
		if text, w := api.text(own), api.written(); text != "" || len(w) != 3 {
			t.Errorf("there is %q; wrote %v", text, w)
		}
	})
}
