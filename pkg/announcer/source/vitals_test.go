package source

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// of returns members of which some have no API server.
func of(have, haveNot int) []plan.Member {
	var out []plan.Member
	for i := range have + haveNot {
		out = append(out, plan.Member{Name: fmt.Sprint("n", i), Standing: plan.Standing{NoAPI: i >= have}})
	}
	return out
}

func TestStaleOnlyWhileMostOthersHaveAnAPIServer(t *testing.T) {
	begin := time.Now()
	for _, c := range []struct {
		what          string
		have, haveNot int
		since         time.Duration // that they have
		lost          time.Duration // since then; negative: not at all
		at            time.Duration
		noAPI, stale  bool
	}{
		{"nobody has lost it", 5, 0, 0, -1, time.Hour, false, false},
		{"lost a moment ago", 4, 1, 0, time.Minute, time.Minute + 4*time.Second, false, false},
		{"lost", 4, 1, 0, time.Minute, time.Minute + 29*time.Second, true, false},
		{"lost for long, by one of five", 4, 1, 0, time.Minute, time.Minute + 30*time.Second, true, true},
		{"lost by three of five", 2, 3, 0, time.Minute, time.Hour, true, false},
		{"lost by one of two", 1, 1, 0, time.Minute, time.Hour, true, false},
		{"lost by all, and just back for the others", 4, 1, 10 * time.Minute, time.Minute, 10*time.Minute + 20*time.Second, true, false},
		{"lost by all, and back for the others for long", 4, 1, 10 * time.Minute, time.Minute, 10*time.Minute + 30*time.Second, true, true},
	} {
		v := &vitals{}
		if c.lost >= 0 {
			v.noteAPI(begin.Add(c.lost))
		}
		v.noteMembers(of(0, 3), begin) // nobody has
		v.noteMembers(of(c.have, c.haveNot), begin.Add(c.since))
		s := v.standing(begin.Add(c.at))
		if s.NoAPI != c.noAPI || s.Stale != c.stale {
			t.Errorf("%s: %+v", c.what, s)
		}
	}
}

func TestNotReadyForAMinute(t *testing.T) {
	v, now := &vitals{}, time.Now()
	v.noteReady(false, now)
	v.noteReady(false, now.Add(30*time.Second))
	if s := v.standing(now.Add(time.Minute - 1)); s.Unfit != "" {
		t.Errorf("unfit too early: %+v", s)
	}
	if s := v.standing(now.Add(time.Minute)); s.Unfit != plan.NodeNotReady {
		t.Errorf("after a minute: %+v", s)
	}
	v.noteReady(true, now.Add(time.Hour))
	if s := v.standing(now.Add(time.Hour)); s.Unfit != "" {
		t.Errorf("after it is over: %+v", s)
	}
}

func TestReadyUnknownNeverCounts(t *testing.T) {
	for status, want := range map[corev1.ConditionStatus]bool{
		corev1.ConditionTrue: false, corev1.ConditionUnknown: false, corev1.ConditionFalse: true,
	} {
		o := machine("n1", "192.0.2.11")
		o.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
		if n, _ := convertNode(o); n.notReady != want {
			t.Errorf("Ready %s: not ready is %v", status, n.notReady)
		}
	}
}

func TestDataPathCannotFlap(t *testing.T) {
	v, now := &vitals{}, time.Now()
	look := func(seen health, n int) {
		for range n {
			now = now.Add(dataPathEvery)
			v.noteDataPath(seen, now)
		}
	}
	steps := []struct {
		seen health
		n    int
		want plan.Reason
	}{
		{well, 100, ""},
		{unwell, 3, ""}, // 10 s
		{well, 1, ""},
		{unwell, 3, ""},
		{unwell, 1, plan.DataPathDown}, // 15 s
		{well, 12, plan.DataPathDown},  // 55 s
		{unwell, 1, plan.DataPathDown}, // it begins anew
		{well, 12, plan.DataPathDown},
		{well, 1, ""}, // a minute
		{unwell, 4, plan.DataPathDown},
		{noSign, 13, ""}, // nobody says any more that anything is wrong
	}
	for i, s := range steps {
		look(s.seen, s.n)
		if got := v.standing(now).Unfit; got != s.want {
			t.Errorf("after step %d: %q, want %q", i, got, s.want)
		}
	}
	look(unwell, 4)
	v.forgetDataPath()
	if got := v.standing(now).Unfit; got != "" {
		t.Errorf("it counts though nobody is to look: %q", got)
	}
}

func TestAnswersOfKubeProxy(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		code, body := 0, ""
		if _, err := fmt.Sscanf(r.Header.Get("Case"), "%d %q", &code, &body); err != nil {
			t.Error(err)
		}
		if r.URL.Path != "/healthz" {
			code = http.StatusNotFound
		}
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	}))
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "http://")
	for _, c := range []struct {
		code int
		body string
		want health
	}{
		{200, `{"lastUpdated": "now","currentTime": "now", "nodeEligible": true}`, well},
		{503, `{"lastUpdated": "long ago","currentTime": "now", "nodeEligible": true}`, unwell},
		{503, `{"lastUpdated": "now","currentTime": "now", "nodeEligible": false}`, noSign},
		{503, `it is raining`, unwell},
		{404, ``, noSign},
		{500, ``, noSign},
	} {
		client := &http.Client{Transport: withCase(fmt.Sprintf("%d %q", c.code, c.body))}
		if got := askHealth(context.Background(), client, address); got != c.want {
			t.Errorf("%d %s: %d, want %d", c.code, c.body, got, c.want)
		}
	}
	server.Close()
	if got := askHealth(context.Background(), http.DefaultClient, address); got != noSign {
		t.Errorf("nobody there: %d", got)
	}
}

// withCase tells the server what to answer.
type withCase string

func (c withCase) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Set("Case", string(c))
	return http.DefaultTransport.RoundTrip(r)
}

func TestSilenceOfTheAPIServer(t *testing.T) {
	here, there := net.Pipe()
	p := &pulse{born: time.Now().Add(-time.Hour)}
	c := pulseConn{here, p}
	if since := p.silentSince(time.Now()); !since.IsZero() {
		t.Errorf("silent before it is known whether silence means anything: since %s", since)
	}
	p.pings.Store(true)
	if p.silentSince(time.Now()).IsZero() {
		t.Error("an hour of silence is none")
	}
	go func() { _, _ = there.Write([]byte("x")) }()
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	heard := time.Now()
	if since := p.silentSince(heard.Add(silentAfter - time.Second)); !since.IsZero() {
		t.Errorf("silent since %s", since)
	}
	since := p.silentSince(heard.Add(silentAfter))
	if age := heard.Sub(since); since.IsZero() || age < 0 || age > time.Minute {
		t.Errorf("silent since %s, was heard %s", since, heard)
	}
	p.pings.Store(false)
	if since := p.silentSince(heard.Add(time.Hour)); !since.IsZero() {
		t.Errorf("silence counts without pings: since %s", since)
	}
}

func TestOwnStandingIsPartOfTheSnapshot(t *testing.T) {
	r := run(t, populated(t), nil).known(t)
	now := time.Now()
	r.vitals.noteReady(false, now.Add(-time.Hour))
	s, err := r.With(members{}).Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	if want := (plan.Standing{Settling: true, Unfit: plan.NodeNotReady}); s.Self != want {
		t.Errorf("it is %+v, want %+v", s.Self, want)
	}
}

// TestTimeAloneKicks: nothing happens, but a minute of NotReady is over.
func TestTimeAloneKicks(t *testing.T) {
	r := run(t, populated(t), nil).known(t)
	if _, err := r.With(members{}).Snapshot(); err != nil {
		t.Fatal(err)
	}
	kicks := r.kicks.Load()
	r.vitals.noteReady(false, time.Now().Add(-notReadyAfter))
	eventually(t, "a kick", func() string {
		if r.kicks.Load() == kicks {
			return "none came"
		}
		return ""
	})
}

func TestDataPathIsFollowedAsConfigured(t *testing.T) {
	api := populated(t)
	r := &running{api: api, log: &journal{}}
	r.World = New(Options{Node: "n1", API: api.client(), Kick: func() {}, Log: r.log.logger()})
	looks := make(chan struct{}, 1)
	r.probe = func(context.Context) health {
		looks <- struct{}{}
		return unwell
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r.document.offer([]byte(documentFor("192.0.2.0/24")), nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.followDataPath(ctx)
	}()
	<-looks
	cancel()
	<-done
	off, stop := context.WithCancel(context.Background())
	stop()
	r.document.offer([]byte(documentFor("192.0.2.0/24")+"\ndataPathCheck: off\n"), nil)
	r.followDataPath(off)
	r.vitals.mu.Lock()
	defer r.vitals.mu.Unlock()
	if !r.vitals.unwell.IsZero() || len(looks) > 0 {
		t.Error("it was looked at though that is switched off")
	}
}
