package frrcluster_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// peering is a session with routes.
func peering(edit func(*config.Peer), prefixes ...string) plan.Peering {
	p := plan.Peering{Backend: config.FRRK8s, Pause: 3 * time.Second, Peer: config.Peer{
		Name: "r1", Address: netip.MustParseAddr("192.0.2.1"), Port: 179, ASN: 64501, LocalASN: 64500, Multihop: 1,
		HoldTime: 90 * time.Second, KeepaliveTime: 30 * time.Second, ConnectTime: 30 * time.Second, Families: []config.Family{config.IPv4},
	}}
	if edit != nil {
		edit(&p.Peer)
	}
	for _, prefix := range prefixes {
		p.Routes = append(p.Routes, plan.Route{Prefix: netip.MustParsePrefix(prefix), LocalPref: 100})
	}
	return p
}

const shutdown = `"community":"65535:0"`

func TestObjectFollowsWhatIsWanted(t *testing.T) {
	api := newAPI(true)
	s := newSpeaker(t, api)
	s.Set([]plan.Peering{peering(nil, "198.51.100.1/32")})
	api.waitText(t, own, `"address":"192.0.2.1"`, "198.51.100.1/32", `"kubernetes.io/hostname":"host-1"`, `"uid":"u-1"`)
	s.Set([]plan.Peering{peering(nil, "198.51.100.2/32")})
	api.waitText(t, own, "198.51.100.2/32", "!198.51.100.1/32")
	if w := api.written(); len(w) != 2 {
		t.Errorf("wrote %v", w)
	}
}

func TestNothingIsWrittenAtRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(true)
		s := newSpeaker(t, api)
		for range 100 {
			s.Set([]plan.Peering{peering(nil, "198.51.100.1/32")})
			time.Sleep(30 * time.Second)
		}
		if w := api.written(); len(w) != 1 {
			t.Errorf("wrote %v", w)
		}
		s.Close()
		next := newSpeaker(t, api)
		next.Set([]plan.Peering{peering(nil, "198.51.100.1/32")})
		time.Sleep(time.Hour)
		if w := api.written(); len(w) != 1 {
			t.Errorf("a new announcer wrote %v", w)
		}
		next.Close()
	})
}

func TestDriftIsRepairedAndDeletedObjectsComeBack(t *testing.T) {
	api := newAPI(true)
	s := newSpeaker(t, api)
	s.Set([]plan.Peering{peering(nil, "198.51.100.1/32")})
	api.waitText(t, own, "198.51.100.1/32")
	api.put(own, map[string]any{"metadata": map[string]any{"name": "ccm-baremetal-n1", "uid": "u-2"}, "spec": map[string]any{"bgp": map[string]any{}}})
	api.waitText(t, own, "198.51.100.1/32")
	api.remove(own)
	api.waitText(t, own, "198.51.100.1/32")
}

func TestWithoutFRRK8sItSaysSoAndTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(false)
		s := newSpeaker(t, api)
		s.Set([]plan.Peering{peering(nil, "198.51.100.1/32")})
		time.Sleep(10 * time.Minute)
		if all := s.Sessions(); len(all) != 1 || all[0].State != bgp.Idle || all[0].Why != "frr-k8s is not installed: the API server has no frrk8s.metallb.io/v1beta1" {
			t.Errorf("got %+v", all)
		}
		if w := api.written(); len(w) != 0 {
			t.Errorf("wrote %v", w)
		}
		api.set(func() { api.installed = true })
		time.Sleep(time.Minute)
		if api.text(own) == "" {
			t.Error("nothing is written after it has been installed")
		}
		s.Close()
	})
}

func TestWriteThatIsRefusedIsSaidAndTriedAgain(t *testing.T) {
	api := newAPI(true)
	api.set(func() { api.refuse = errors.New("admission webhook denied the request: different asns") })
	s := newSpeaker(t, api)
	s.Set([]plan.Peering{peering(nil, "198.51.100.1/32")})
	waitSession(t, s, bgp.Idle, "write FRRConfiguration frr-k8s-system/ccm-baremetal-n1: admission webhook denied the request: different asns")
	api.set(func() { api.refuse = nil })
	api.waitText(t, own, "198.51.100.1/32")
}

// session is what frr-k8s tells of the session with r1.
func session(state, bfd string) map[string]any {
	return map[string]any{"metadata": map[string]any{"name": "n1-x7"}, "status": map[string]any{
		"node": "n1", "peer": "192.0.2.1", "vrf": "", "bgpStatus": state, "bfdStatus": bfd,
	}}
}

// state is what frr-k8s tells of the node's FRR.
func state(conversion, running string) map[string]any {
	return map[string]any{"metadata": map[string]any{"name": "n1"}, "status": map[string]any{
		"runningConfig": running, "lastConversionResult": conversion, "lastReloadResult": "success",
	}}
}

const (
	sessionPath = groupPath + "/namespaces/" + namespace + "/bgpsessionstates/n1-x7"
	statePath   = groupPath + "/frrnodestates/n1"
)

func TestSessionsAreWhatFRRK8sTells(t *testing.T) {
	api := newAPI(true)
	s := newSpeaker(t, api)
	s.Set([]plan.Peering{peering(nil, "198.51.100.1/32", "198.51.100.2/32")})
	waitSession(t, s, bgp.Idle, "frr-k8s says nothing of this node")
	api.put(statePath, state("success", ""))
	waitSession(t, s, bgp.Idle, "frr-k8s has told nothing of this session yet")
	api.put(sessionPath, session("Active", "N/A"))
	waitSession(t, s, bgp.Connecting, "")
	api.put(sessionPath, session("Established", "Up"))
	waitSession(t, s, bgp.Established, "frr-k8s has told of 0 of 2 prefixes so far")
	api.put(statePath, state("success", "router bgp 64500\n address-family ipv4 unicast\n  network 198.51.100.1/32\n  network 198.51.100.2/32\n"))
	if x := waitSession(t, s, bgp.Established, ""); x.BFD != "up" || x.ASN != 64501 || x.Times != 1 || len(x.Advertised) != 2 || !x.Uncounted {
		t.Errorf("got %+v", x)
	}
	api.put(statePath, state("failed: multiple asns specified", ""))
	waitSession(t, s, bgp.Established, "frr-k8s does not accept the FRRConfigurations of this node: failed: multiple asns specified")
	api.remove(sessionPath)
	api.put(statePath, state("success", ""))
	waitSession(t, s, bgp.Idle, "told nothing")
	api.put(sessionPath, session("Established", "Up"))
	if x := waitSession(t, s, bgp.Established, "0 of 2"); x.Times != 2 {
		t.Errorf("got %+v", x)
	}
}

func secret(kind string) map[string]any {
	return map[string]any{"metadata": map[string]any{"name": "tor"}, "type": kind, "data": map[string]any{"password": []byte("hush")}}
}

// A Secret that is not there would make frr-k8s take nothing of what the node
// has: the peer is left out, and others are not.
func TestPeerWhosePasswordIsMissingIsLeftOutAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(true)
		s := newSpeaker(t, api)
		guarded := peering(func(p *config.Peer) { p.PasswordSecret = "tor" }, "198.51.100.1/32")
		open := peering(func(p *config.Peer) { p.Name, p.Address = "r2", p.Address.Next() }, "198.51.100.2/32")
		s.Set([]plan.Peering{guarded, open})
		api.waitText(t, own, "192.0.2.2", "198.51.100.2/32", "!192.0.2.1\"", "!198.51.100.1/32")
		s.Set([]plan.Peering{guarded})
		waitSession(t, s, bgp.Idle, "there is no Secret frr-k8s-system/tor: it has to be beside frr-k8s")
		api.put(secrets+"tor", secret("Opaque"))
		waitSession(t, s, bgp.Idle, "its type is Opaque, and frr-k8s wants kubernetes.io/basic-auth")
		api.put(secrets+"tor", secret("kubernetes.io/basic-auth"))
		api.waitText(t, own, "192.0.2.1", `"passwordSecret":{"name":"tor","namespace":"frr-k8s-system"}`, "!hush")
		s.Close()
	})
}

func TestLeavingRoutersAreAskedFirst(t *testing.T) {
	for name, leave := range map[string][]plan.Peering{
		"drained": {func() plan.Peering {
			p := peering(nil, "198.51.100.1/32")
			p.Leaving = plan.Draining
			return p
		}()},
		"removed": nil,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newAPI(true)
				s := newSpeaker(t, api)
				s.Set([]plan.Peering{peering(nil, "198.51.100.1/32")})
				time.Sleep(time.Minute)
				s.Set(leave)
				time.Sleep(12 * time.Second)
				api.waitText(t, own, shutdown, "198.51.100.1/32")
				time.Sleep(2 * time.Second)
				api.waitGone(t, own)
				if w := api.written(); len(w) != 3 {
					t.Errorf("wrote %v", w)
				}
				reads := 0
				api.set(func() { reads = api.reads })
				for range 60 {
					s.Set(leave)
					time.Sleep(time.Minute)
				}
				api.set(func() {
					if api.reads != reads {
						t.Errorf("%d requests after it has left", api.reads-reads)
					}
				})
				s.Set([]plan.Peering{peering(nil, "198.51.100.1/32")})
				time.Sleep(time.Second)
				api.waitText(t, own, "198.51.100.1/32", "!"+shutdown)
				s.Close()
			})
		})
	}
}

func TestLeaveThatIsTakenBackLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(true)
		s := newSpeaker(t, api)
		s.Set([]plan.Peering{peering(nil, "198.51.100.1/32")})
		time.Sleep(time.Minute)
		s.Set(nil)
		time.Sleep(5 * time.Second)
		s.Set([]plan.Peering{peering(nil, "198.51.100.1/32")})
		time.Sleep(time.Minute)
		api.waitText(t, own, "198.51.100.1/32", "!"+shutdown)
		if w := api.written(); slices.Contains(w, "delete "+own) {
			t.Errorf("wrote %v", w)
		}
		s.Close()
	})
}

// end lets a speaker leave as an announcer does that ends, and returns how long
// it took.
func end(t *testing.T, leave func(context.Context)) time.Duration {
	ctx, cancel := context.WithTimeout(t.Context(), 17*time.Second)
	defer cancel()
	began := time.Now()
	leave(ctx)
	return time.Since(began)
}

func TestEndOfAnAnnouncer(t *testing.T) {
	for name, c := range map[string]struct {
		edit  func(*plan.Peering)
		stays bool
		took  time.Duration
	}{
		"asks and withdraws":                       {func(*plan.Peering) {}, false, 13 * time.Second},
		"is in time with the longest pause":        {func(p *plan.Peering) { p.Pause = 15 * time.Second }, false, 14 * time.Second},
		"leaves what FRR can keep (B128)":          {func(p *plan.Peering) { p.Peer.GracefulRestart = 120 * time.Second }, true, 0},
		"of a drained node withdraws all the same": {func(p *plan.Peering) { p.Peer.GracefulRestart, p.Leaving = 120*time.Second, plan.Draining }, false, 13 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newAPI(true)
				s := newSpeaker(t, api)
				p := peering(nil, "198.51.100.1/32")
				c.edit(&p)
				before := p
				before.Leaving = ""
				s.Set([]plan.Peering{before})
				time.Sleep(time.Minute)
				s.Set([]plan.Peering{p})
				if took := end(t, s.Leave); took < c.took || took > c.took+time.Second {
					t.Errorf("took %s, want %s", took, c.took)
				}
				if there := api.text(own) != ""; there != c.stays {
					t.Errorf("the object is there: %t; wrote %v", there, api.written())
				}
				s.Set(nil)
				time.Sleep(time.Minute)
				if there := api.text(own) != ""; there != c.stays {
					t.Error("it is not at an end")
				}
			})
		})
	}
}

func TestEndWithoutAnAPIServerIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(true)
		s := newSpeaker(t, api)
		s.Set([]plan.Peering{peering(nil, "198.51.100.1/32")})
		time.Sleep(time.Minute)
		api.set(func() { api.refuse = errors.New("connection refused") })
		if took := end(t, s.Leave); took > 17*time.Second {
			t.Errorf("took %s", took)
		}
		s.Close()
	})
}

// A document that names another backend while the announcer is down leaves an
// object behind.
func TestWhatAnAnnouncerBeforeHasLeftIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(true)
		api.put(own, map[string]any{"metadata": map[string]any{"name": "ccm-baremetal-n1"}})
		s := newSpeaker(t, api)
		s.Set(nil)
		time.Sleep(time.Second)
		if api.text(own) != "" {
			t.Error("it is still there")
		}
		s.Set(nil)
		time.Sleep(time.Hour)
		if w := api.written(); !slices.Equal(w, []string{"delete " + own}) {
			t.Errorf("wrote %v", w)
		}
		s.Close()
		without := newAPI(false)
		s = newSpeaker(t, without)
		s.Set(nil)
		time.Sleep(time.Hour)
		if w := without.written(); len(w) > 0 || len(s.Sessions()) > 0 {
			t.Errorf("without frr-k8s: wrote %v, has %v", w, s.Sessions())
		}
		s.Close()
	})
}
