package audit

import (
	"strings"
	"testing"
	"time"
)

const sample = `
{"stage":"ResponseComplete","requestURI":"/api/v1/namespaces/shop/services/web/status?fieldManager=x","verb":"patch","user":{"username":"system:serviceaccount:kube-system:ccm"},"userAgent":"ccm/v1","objectRef":{"resource":"services","namespace":"shop","name":"web","apiVersion":"v1","subresource":"status"},"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-01-01T10:00:02.000000Z"}
{"stage":"ResponseComplete","requestURI":"/api/v1/services?watch=true","verb":"watch","user":{"username":"system:serviceaccount:kube-system:ccm"},"userAgent":"ccm/v1","objectRef":{"resource":"services","apiVersion":"v1"},"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-01-01T10:00:00.000000Z"}
{"stage":"ResponseStarted","requestURI":"/api/v1/services?watch=true","verb":"watch","user":{"username":"system:serviceaccount:kube-system:ccm"},"userAgent":"ccm/v1","objectRef":{"resource":"services","apiVersion":"v1"},"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-01-01T10:00:01.000000Z"}
{"stage":"ResponseComplete","requestURI":"/api/v1/nodes","verb":"list","user":{"username":"system:serviceaccount:kube-system:announcer"},"userAgent":"announcer/v1","objectRef":{"resource":"nodes","apiVersion":"v1"},"responseStatus":{"code":403},"annotations":{"authorization.k8s.io/decision":"forbid"},"requestReceivedTimestamp":"2026-01-01T10:00:03.000000Z"}
{"stage":"ResponseComplete","requestURI":"/apis/authentication.k8s.io/v1/tokenreviews","verb":"create","user":{"username":"system:apiserver"},"userAgent":"x","objectRef":{"resource":"tokenreviews","apiGroup":"authentication.k8s.io"},"responseStatus":{"code":201},"requestReceivedTimestamp":"2026-01-01T10:00:04.000000Z"}
{"stage":"ResponseComplete","requestURI":"/readyz?verbose","verb":"get","user":{"username":"admin"},"userAgent":"curl","responseStatus":{"code":200},"requestReceivedTimestamp":"2026-01-01T10:00:05.000000Z"}
`

func read(t *testing.T, text string, since time.Time) Log {
	t.Helper()
	log, err := Read(strings.NewReader(text), since)
	if err != nil {
		t.Fatal(err)
	}
	return log
}

func TestCounts(t *testing.T) {
	const want = `TIMES  USER                                          VERB    OBJECT           CODE  AGENT
1      admin                                         get     /readyz          200   curl
1      system:apiserver                              create  tokenreviews     201   x
1      system:serviceaccount:kube-system:announcer   list    nodes            403   announcer/v1
1      system:serviceaccount:kube-system:ccm         watch   services         200   ccm/v1
1      system:serviceaccount:kube-system:ccm         patch   services/status  200   ccm/v1
`
	if got := strings.ReplaceAll(read(t, sample, time.Time{}).String(), "ccm  ", "ccm "); !equalTables(got, want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// equalTables compares without the width of the columns.
func equalTables(a, b string) bool {
	words := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	return words(a) == words(b)
}

func TestFilters(t *testing.T) {
	log := read(t, sample, time.Time{})
	for name, test := range map[string]struct {
		got  Log
		want int
	}{
		"writes":                           {log.Writes(), 1},
		"writes of the account":            {log.User("kube-system/ccm").Writes().On("services/status"), 1},
		"a resource without its parts":     {log.On("services"), 1},
		"forbidden":                        {log.Forbidden(), 1},
		"fulfilled":                        {log.Succeeded(), 4},
		"by the beginning of their agents": {log.Agent("ccm/"), 2},
		"by verb":                          {log.Verb("watch", "list"), 2},
		"by user":                          {log.User("admin"), 1},
		"nothing":                          {log.User("kube-system/nobody"), 0},
	} {
		if len(test.got) != test.want {
			t.Errorf("%s: %d, want %d\n%s", name, len(test.got), test.want, test.got)
		}
	}
}

func TestSince(t *testing.T) {
	since := time.Date(2026, 1, 1, 10, 0, 3, 0, time.UTC)
	if log := read(t, sample, since); len(log) != 3 || !log[0].Time.Equal(since) {
		t.Errorf("since %v:\n%s", since, log)
	}
}

func TestLineThatIsBeingWrittenIsLeftOut(t *testing.T) {
	whole := strings.TrimSpace(sample)
	if log := read(t, whole[:len(whole)-20], time.Time{}); len(log) != 4 {
		t.Errorf("%d events, want 4", len(log))
	}
}

func TestBadLineIsNamed(t *testing.T) {
	_, err := Read(strings.NewReader("{}\nnonsense\n"), time.Time{})
	if err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("got %v", err)
	}
}
