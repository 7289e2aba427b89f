package main

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/status"
)

// kubelet forwards to an address whatever port it is asked for, in SPDY, as
// kubelets do; a web socket it refuses, as old API servers do.
func kubelet(t *testing.T, address string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
			http.Error(w, "what is a web socket?", http.StatusBadRequest)
			return
		}
		if _, err := httpstream.Handshake(r, w, []string{"portforward.k8s.io"}); err != nil {
			t.Error(err)
			return
		}
		streams := make(chan httpstream.Stream, 8)
		conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error {
			streams <- s
			return nil
		})
		if conn == nil {
			t.Error("no upgrade")
			return
		}
		defer conn.Close()
		for {
			select {
			case s := <-streams:
				switch {
				case s.Headers().Get(v1.PortHeader) != "7958":
					t.Errorf("asked for port %s", s.Headers().Get(v1.PortHeader))
				case s.Headers().Get(v1.StreamType) == v1.StreamTypeError:
					_ = s.Close()
				default:
					go pipe(s, address)
				}
			case <-conn.CloseChan():
				return
			case <-time.After(time.Minute):
				t.Error("the connection was left open")
				return
			}
		}
	})
}

func pipe(s httpstream.Stream, address string) {
	defer s.Close()
	to, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer to.Close()
	go func() { _, _ = io.Copy(to, s) }()
	_, _ = io.Copy(s, to)
}

func TestAnnouncersAreReachedThroughTheAPIServer(t *testing.T) {
	p := newPlan(t)
	page := announcer(t, func(int) status.Plan { return p })
	a := newAPI(t)
	a.kubelet = kubelet(t, strings.TrimPrefix(page, "http://"))
	out, err := command(t, "members", "-o", "json", "--kubeconfig", a.serve(t))
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ Node string }
	if err := json.Unmarshal([]byte(out), &got); err != nil || got.Node != "n2" {
		t.Errorf("%v: %s", err, out)
	}
}

func TestWhatKeepsAPortFromBeingForwardedIsSaid(t *testing.T) {
	_, err := command(t, "members", "--kubeconfig", newAPI(t).serve(t))
	if err == nil || !strings.Contains(err.Error(), "the announcer on n2: forward a port to a-n2") {
		t.Error(err)
	}
	_, err = command(t, "members", "--node", "n7", "--kubeconfig", newAPI(t).serve(t))
	if err == nil || !strings.Contains(err.Error(), `no announcer runs on a node "n7"`) {
		t.Error(err)
	}
}
