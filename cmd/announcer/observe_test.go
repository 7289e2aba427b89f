package main

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/status"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// said returns a log, and what was said since the last call.
func said() (log *slog.Logger, since func() string) {
	var out bytes.Buffer
	drop := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
			return slog.Attr{}
		}
		return a
	}
	since = func() string {
		defer out.Reset()
		return out.String()
	}
	return slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: drop})), since
}

func announcement(address string, yield bool) plan.Announcement {
	return plan.Announcement{Address: netip.MustParseAddr(address), Links: []plan.Link{{Name: "eth0"}}, Yield: yield}
}

func TestSilentSpeakerSaysWhatItWouldAnnounceWhenThatChanges(t *testing.T) {
	log, since := said()
	s := &silentSpeaker{log: log}
	set := func(want ...plan.Announcement) string {
		if err := s.Set(context.Background(), want); err != nil {
			t.Fatal(err)
		}
		if len(s.Answering()) != 0 {
			t.Error("it answers")
		}
		return since()
	}
	first := []plan.Announcement{announcement("192.0.2.1", false), announcement("192.0.2.2", true)}
	if got, want := set(first...), "msg=\"only observing, would announce\" address=192.0.2.1 links=eth0\n"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := set(first...); got != "" {
		t.Errorf("said again: %s", got)
	}
	if got, want := set(), "msg=\"only observing, would no longer announce\" address=192.0.2.1\n"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestSilentRouterSaysWhatItWouldTellWhenThatChanges(t *testing.T) {
	log, since := said()
	r := &silentRouter{log: log}
	want := []plan.Peering{{Peer: config.Peer{Name: "tor-a"}, Routes: []plan.Route{{Prefix: netip.MustParsePrefix("192.0.2.1/32")}}}}
	r.Set(want)
	r.Set(want)
	if got, want := since(), "msg=\"only observing, would tell a router\" peer=tor-a routes=192.0.2.1/32\n"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	s := r.Sessions()
	if len(s) != 1 || s[0].Why != "only observing: would be told 1 routes" || s[0].Wanted != 1 || len(s[0].Advertised) != 0 {
		t.Errorf("sessions %+v", s)
	}
	r.Set(nil)
	if got, want := since(), "msg=\"only observing, would end the session with a router\" peer=tor-a\n"; got != want || len(r.Sessions()) != 0 {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestObserverIsReadyAndLeavesTheNodesRecordAlone(t *testing.T) {
	record := filepath.Join(t.TempDir(), "record")
	const past = `{"version":1,"events":[]}`
	if err := os.WriteFile(record, []byte(past), 0o600); err != nil {
		t.Fatal(err)
	}
	api := newFakeAPI(t)
	r := start(t, api.URL, "--insecure-membership", "--observe-only", "--record", record)
	r.says(t, "/readyz", "200 OK ok")
	r.says(t, "/metrics", "announcer_observe_only 1\n")
	response, err := http.Get("http://" + r.debug + "/debug/plan")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var p status.Plan
	if err := json.NewDecoder(response.Body).Decode(&p); err != nil || !p.ObserveOnly {
		t.Errorf("observes only: %v, %v", p.ObserveOnly, err)
	}
	r.signal(t, syscall.SIGTERM)
	if err := r.ends(t); err != nil {
		t.Errorf("ended with %v", err)
	}
	if now, err := os.ReadFile(record); err != nil || string(now) != past {
		t.Errorf("the record is %s, %v", now, err)
	}
	if log := r.log.String(); !strings.Contains(log, "cluster=cluster-a/observe-only") {
		t.Errorf("it gossips with those that announce:\n%s", log)
	}
}
