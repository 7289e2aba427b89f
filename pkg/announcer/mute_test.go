package announcer

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

const bothWays = `apiVersion: ccm-baremetal.io/v1alpha1
kind: CloudConfig
pools: [{addresses: [192.0.2.0/24]}]
advertisements: [{layer2: {}, bgp: {}}]
bgp: {localASN: 64500, peers: [{name: r1, address: 203.0.113.1, asn: 64501}]}
`

// near gives a pipe the address that a session looks for.
type near struct{ net.Conn }

func (near) LocalAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)} }

// A router that accepts connections and says nothing takes a minute to be given
// up. Layer 2 has every change in the pass that decides it, and its end too.
func TestMuteRouterDelaysNothingOnLayer2(t *testing.T) {
	for name, far := range map[string]func(net.Conn){
		"it reads":         func(c net.Conn) { _, _ = io.Copy(io.Discard, c) },
		"it reads nothing": func(net.Conn) {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { muteRouter(t, far) })
		})
	}
}

func muteRouter(t *testing.T, far func(net.Conn)) {
	speaker := bgp.New(bgp.Options{
		Node: "n1", Log: slog.New(slog.DiscardHandler),
		Dial: func(context.Context, bgp.Target) (bgp.Transport, error) {
			a, b := net.Pipe()
			go far(b)
			return bgp.Transport{Conn: near{a}, IPv4: netip.MustParseAddr("192.0.2.1")}, nil
		},
	})
	defer speaker.Close()
	c, err := config.Load([]byte(bothWays))
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, "192.0.2.10", "192.0.2.11", "192.0.2.12")
	all := r.world.state.Services
	r.world.change(func(s *plan.Snapshot) { s.Config, s.Services = c, all[:1] })
	r.world.change(lose("n2", "n3"))
	r.other = speaker
	r.start(t)
	time.Sleep(meetWithin) // with another announcer
	synctest.Wait()

	at := func(state bgp.State, services []plan.Service, want string) {
		t.Helper()
		if got := speaker.Sessions(); len(got) != 1 || got[0].State != state {
			t.Errorf("the session is %+v, want %s", got, state)
		}
		began := time.Now()
		r.world.change(func(s *plan.Snapshot) { s.Services = services })
		r.kickAndWait()
		wantAnswering(t, r, want)
		if took := time.Since(began); took != 0 {
			t.Errorf("it took %s", took)
		}
	}
	at(bgp.Opening, all[:2], "192.0.2.10, 192.0.2.11")
	time.Sleep(30 * time.Second)
	at(bgp.Opening, all[1:2], "192.0.2.11")
	for range 60 { // until it has been given up once
		time.Sleep(time.Second)
		synctest.Wait()
		if speaker.Sessions()[0].State == bgp.Idle {
			break
		}
	}
	at(bgp.Idle, all[1:], "192.0.2.11, 192.0.2.12")
	r.end()
	<-r.done
	const want = "start 192.0.2.10, start 192.0.2.11, stop 192.0.2.10, start 192.0.2.12, stop 192.0.2.11, stop 192.0.2.12"
	if got := r.wire.history(); got != want {
		t.Errorf("layer 2 did %s, want %s", got, want)
	}
}
