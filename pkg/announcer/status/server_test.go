package status

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
	"github.com/ccm-baremetal/ccm-baremetal/test/golden"
)

// serve runs the servers of a Status and returns a client for both.
func serve(t *testing.T, s *Status) func(debug bool, path string) (int, string) {
	t.Helper()
	public, debug := listen(t), listen(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, public, debug) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return func(onDebug bool, path string) (int, string) {
		t.Helper()
		address := public.Addr()
		if onDebug {
			address = debug.Addr()
		}
		response, err := http.Get("http://" + address.String() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(body)
	}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestServe(t *testing.T) {
	r := newRig()
	get := serve(t, r.Status)
	if code, body := get(false, "/healthz"); code != 200 || body != "ok\n" {
		t.Errorf("healthz while it starts: %d %s", code, body)
	}
	if code, body := get(false, "/readyz"); code != 503 || body != "NotSynced: the loop has not passed yet\n" {
		t.Errorf("readyz while it starts: %d %s", code, body)
	}
	r.Observe(pass(world(t), nil))
	if code, body := get(false, "/readyz"); code != 200 || body != "ok\n" {
		t.Errorf("readyz: %d %s", code, body)
	}
	r.warming = 12*time.Second + 400*time.Millisecond
	if code, body := get(false, "/readyz"); code != 503 || body != "Settling: has started a short while ago, other nodes are preferred; ready in 12s\n" {
		t.Errorf("readyz while it settles: %d %s", code, body)
	}
	r.warming = 0
	if code, body := get(false, "/metrics"); code != 200 || !strings.Contains(body, "announcer_ready 1\n") || !strings.Contains(body, "process_start_time_seconds") {
		t.Errorf("metrics: %d %s", code, body)
	}
	for _, path := range []string{"/debug/plan", "/debug/pprof/"} {
		if code, _ := get(false, path); code != 404 {
			t.Errorf("%s is to be had from outside of the node: %d", path, code)
		}
	}
	if code, body := get(true, "/debug/pprof/cmdline"); code != 200 || body == "" {
		t.Errorf("pprof: %d %s", code, body)
	}
	if code, _ := get(true, "/debug/plan?format=xml"); code != 400 {
		t.Errorf("unknown format: %d", code)
	}
}

func TestDebugPlanCanBeReplayed(t *testing.T) {
	r := newRig()
	s := world(t)
	p := pass(s, nil)
	r.answers(p)
	r.Observe(p)
	_, body := serve(t, r.Status)(true, "/debug/plan")
	var got Plan
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	again, err := got.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	values := cmp.Options{
		cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(plan.Verdict{}),
	}
	if diff := cmp.Diff(p.Verdicts, plan.Decide(again), values); diff != "" {
		t.Errorf("decided again from the page:\n%s", diff)
	}
	for i, v := range got.Verdicts {
		if diff := cmp.Diff(p.Verdicts[i], v, values); diff != "" || v.MoreExcluded() != 0 {
			t.Errorf("a verdict on the page, %d more excluded:\n%s", v.MoreExcluded(), diff)
		}
	}
	s.Config, again.Config = config.Config{}, config.Config{}
	if diff := cmp.Diff(s, again, values); diff != "" {
		t.Errorf("snapshot on the page:\n%s", diff)
	}
	if len(got.Answering) != 2 || got.Answering[0].Peers != nil || got.LeftOut["lo"] != "Loopback" || got.Error != "" {
		t.Errorf("answering %v, left out %v, error %q", got.Answering, got.LeftOut, got.Error)
	}
}

func TestDebugPlanShowsAllOfASnapshot(t *testing.T) {
	shown := map[string]bool{"Config": true} // as Document
	for _, f := range reflect.VisibleFields(reflect.TypeFor[World]()) {
		shown[f.Name] = true
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[plan.Snapshot]()) {
		if !shown[f.Name] {
			t.Errorf("%s of the snapshot is missing, so that a page could not be replayed", f.Name)
		}
	}
}

func TestDebugPlanIsOfBearableLength(t *testing.T) {
	r := newRig()
	s := world(t)
	for i := range 500 {
		s.Nodes = append(s.Nodes, plan.Node{Name: fmt.Sprint("without-", i)})
	}
	r.Observe(pass(s, nil))
	p := r.Plan()
	if got := p.Verdicts[0]; len(got.Excluded) != plan.Ranked || got.MoreExcluded() != 501-plan.Ranked {
		t.Errorf("%d excluded nodes shown and %d not", len(got.Excluded), got.MoreExcluded())
	}
	var text strings.Builder
	p.writeText(&text)
	if got, want := strings.Count(text.String(), ", and 485 more\n"), 2; got != want {
		t.Errorf("%d times the rest, want %d:\n%s", got, want, &text)
	}
	again, _ := p.Snapshot()
	if v, _ := plan.Explain(again, p.Verdicts[0].Address); len(v.Excluded) != 501 {
		t.Errorf("decided again, %d are there", len(v.Excluded))
	}
}

func TestDebugPlanAsText(t *testing.T) {
	r := newRig()
	r.Observe(pass(world(t), nil))
	_, body := serve(t, r.Status)(true, "/debug/plan?format=text")
	golden.Check(t, filepath.Join("testdata", "plan.txt"), body)
}

func TestMetrics(t *testing.T) {
	r := newRig()
	s := world(t)
	first := pass(s, nil)
	r.Observe(first)
	s.Members = append([]plan.Member{}, s.Members...)
	s.Members[1].Draining = true
	second := pass(s, first.Verdicts)
	r.answers(second)
	r.answering[1].Yield = true
	r.Observe(second)
	r.down = []string{"Nodes"}
	r.gossip = Gossip{Joins: 3, JoinFailures: 1, Rejected: 4, Garbled: 5, Updates: 6, HealthScore: 2}
	r.layer2 = Layer2{
		Frames: map[string]Frames{
			"arp": {Requests: 10, Replies: 9, Unsent: 1, Gratuitous: 12, Probes: 2, Foreign: 3, Dropped: map[string]uint64{"malformed": 7, "opcode": 8}},
			"ndp": {},
		},
		Links:     []Layer2Link{{Name: "eth0", Open: true, Errors: 1, Overflow: 2, Broadcasts: 40, Filtered: 30}, {Name: "eth1", Deaf: true}},
		Conflicts: []Conflict{{Address: "192.0.2.102", Link: "eth0", MAC: "02:00:00:00:00:99", Cause: "ForeignStation"}},
		Withheld:  []Withheld{{Address: "192.0.2.103", Link: "eth0", MAC: "02:00:00:00:00:02", Node: "n2"}},
	}
	r.bgp = []BGPSession{
		{
			Peer: "tor-a", State: "Established", Since: time.Unix(1900000000, 0), Families: []config.Family{config.IPv4, config.IPv6}, Wanted: 3,
			Advertised: []plan.Route{{Prefix: netip.MustParsePrefix("192.0.2.101/32")}, {Prefix: netip.MustParsePrefix("198.51.100.0/24")}},
			BFD:        "up", Times: 2, UpdatesSent: 7, UpdatesReceived: 8,
		},
		{Peer: "tor-b", State: "Idle", Why: "connection refused", Wanted: 3},
		{Peer: "tor-c", State: "Established", Since: time.Unix(1900000001, 0), Families: []config.Family{config.IPv4}, BFD: "up", Times: 1, Uncounted: true},
		{Peer: "tor-d", State: "Idle", BFD: "down", Uncounted: true},
	}
	_, body := serve(t, r.Status)(false, "/metrics")
	var ours strings.Builder
	for line := range strings.Lines(body) {
		if strings.Contains(line, "announcer_") {
			ours.WriteString(line)
		}
	}
	golden.Check(t, filepath.Join("testdata", "metrics.txt"), ours.String())
}

func TestMetricsAreNamedAsTheyShould(t *testing.T) {
	r := newRig()
	p := pass(world(t), nil)
	r.answers(p)
	r.Observe(p)
	r.layer2 = Layer2{Frames: map[string]Frames{"arp": {Dropped: map[string]uint64{"x": 1}}}, Links: []Layer2Link{{}}, Conflicts: []Conflict{{}}, Withheld: []Withheld{{}}}
	r.bgp = []BGPSession{{State: "Established", Families: []config.Family{config.IPv4}}}
	problems, err := testutil.GatherAndLint(r.registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range problems {
		t.Errorf("%s: %s", problem.Metric, problem.Text)
	}
}

// A drained node has no session, nor has one that only observes: nobody is to be
// called for that.
func TestSessionsThatShouldNotBeUpAreNotDown(t *testing.T) {
	r := newRig()
	r.bgp = []BGPSession{{Peer: "tor-a", State: "Left"}, {Peer: "tor-b", State: "Idle"}, {Peer: "tor-c", State: "Leaving"}}
	for _, observes := range []bool{false, true} {
		r.o.ObserveOnly = observes
		want := "# HELP announcer_bgp_session_up " + sessionUp + "\n# TYPE announcer_bgp_session_up gauge\n" +
			"announcer_bgp_session_up{peer=\"tor-b\"} 0\nannouncer_bgp_session_up{peer=\"tor-c\"} 1\n"
		if observes {
			want = ""
		}
		if err := testutil.GatherAndCompare(r.registry, strings.NewReader(want), "announcer_bgp_session_up"); err != nil {
			t.Errorf("observes only: %t: %v", observes, err)
		}
	}
}

func TestSeriesVanishWithWhatTheyAreAbout(t *testing.T) {
	r := newRig()
	p := pass(world(t), nil)
	r.answers(p)
	r.Observe(p)
	count := func() int {
		n, err := testutil.GatherAndCount(r.registry, "announcer_announced")
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if got := count(); got != 1 { // the other one would only be handed over
		t.Errorf("%d addresses announced, want 1", got)
	}
	r.answering = nil
	if got := count(); got != 0 {
		t.Errorf("%d series of addresses that are announced no more", got)
	}
}

func TestDebugPlanSaysWhatIsWrongOnTheWire(t *testing.T) {
	r := newRig()
	r.Observe(pass(world(t), nil))
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	r.layer2 = Layer2{
		Links: []Layer2Link{{Name: "eth0", Open: true}, {Name: "eth1", Deaf: true}},
		Conflicts: []Conflict{
			{Address: "192.0.2.101", Link: "eth0", MAC: "02:00:00:00:00:99", Cause: "ForeignStation", Since: since},
			{Address: "192.0.2.101", Link: "eth0", MAC: "02:00:00:00:00:03", Node: "n3", Cause: "KernelAnswers", Since: since},
		},
		Withheld: []Withheld{
			{Address: "192.0.2.103", Link: "eth0", Since: since},
			{Address: "192.0.2.104", Link: "eth0", MAC: "02:00:00:00:00:02", Node: "n2", Since: since},
		},
	}
	var text strings.Builder
	r.Plan().Layer2.writeText(&text)
	want := `eth1 has received no broadcast for half an hour: requests may not arrive
conflict: 192.0.2.101 is claimed on eth0 by 02:00:00:00:00:99 (ForeignStation) since 2026-01-02T03:04:05Z
conflict: 192.0.2.101 is claimed on eth0 by 02:00:00:00:00:03 of n3 (KernelAnswers) since 2026-01-02T03:04:05Z
withheld: 192.0.2.103 is asked for on eth0 since 2026-01-02T03:04:05Z
withheld: 192.0.2.104 is left to 02:00:00:00:00:02 of n2 on eth0 since 2026-01-02T03:04:05Z
`
	if diff := cmp.Diff(want, text.String()); diff != "" {
		t.Error(diff)
	}
}

func TestTakeoverIsTimedUntilItIsAnswered(t *testing.T) {
	r := newRig()
	s := world(t)
	first := pass(s, nil)
	r.answers(first)
	r.Observe(first) // .101 is new, and no takeover
	s.Members = append([]plan.Member{}, s.Members...)
	s.Members[1].Draining = true
	second := pass(s, first.Verdicts)
	r.Observe(second) // .103 is ours, and not answered yet
	third := pass(s, second.Verdicts)
	third.Started = second.Started.Add(40 * time.Millisecond)
	r.answers(third)
	r.Observe(third)
	r.Observe(pass(s, third.Verdicts))
	_, body := serve(t, r.Status)(false, "/metrics")
	for _, want := range []string{
		`announcer_takeover_duration_seconds_bucket{le="0.025"} 0`, "announcer_takeover_duration_seconds_sum 0.043\n", "announcer_takeover_duration_seconds_count 1\n",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s in\n%s", want, body)
		}
	}
}
