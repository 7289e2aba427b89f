// Package audit reads the audit log of an API server, to count who asked for
// what and how often.
package audit

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// An Event is one request that the API server has answered; of a watch, that it
// has begun.
type Event struct {
	Time        time.Time // when the request came in
	User        string
	UserAgent   string
	Verb        string // get, list, watch, create, update, patch, delete, deletecollection
	Group       string // of the API; empty is the core group
	Resource    string // empty for what is no resource, as /healthz
	Subresource string
	Namespace   string
	Name        string
	URI         string
	Code        int
	Denied      bool // for want of a right, and not because a namespace ends, for example
}

// Log is a list of events in the order of their time.
type Log []Event

// record is the part of an audit.k8s.io/v1 Event that is looked at.
type record struct {
	Stage                    string    `json:"stage"`
	RequestURI               string    `json:"requestURI"`
	Verb                     string    `json:"verb"`
	UserAgent                string    `json:"userAgent"`
	RequestReceivedTimestamp time.Time `json:"requestReceivedTimestamp"`
	User                     struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		APIGroup    string `json:"apiGroup"`
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	Annotations map[string]string `json:"annotations"`
}

// Read reads a log of JSON lines and returns what came in at or after since. A
// last line without its end is left out: it is being written.
func Read(r io.Reader, since time.Time) (Log, error) {
	var log Log
	lines := bufio.NewReader(r)
	for number := 1; ; number++ {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read the audit log: %w", err)
		}
		if len(bytes.TrimSpace(line)) == 0 || older(line, since) {
			continue
		}
		var rec record
		if err := json.Unmarshal(line, &rec); err != nil {
			return nil, fmt.Errorf("audit log, line %d: %w", number, err)
		}
		if rec.counts() && !rec.RequestReceivedTimestamp.Before(since) {
			log = append(log, rec.event())
		}
	}
	slices.SortStableFunc(log, func(a, b Event) int { return a.Time.Compare(b.Time) })
	return log, nil
}

// older says whether a line is surely from before since. Who waits for an event
// reads a long log again and again, and decoding it all takes long.
func older(line []byte, since time.Time) bool {
	const key = `"requestReceivedTimestamp":"`
	i := bytes.Index(line, []byte(key))
	if i < 0 {
		return false
	}
	value, _, _ := bytes.Cut(line[i+len(key):], []byte(`"`))
	at, err := time.Parse(time.RFC3339Nano, string(value))
	return err == nil && at.Before(since)
}

// counts picks one stage of every request. The end of a watch comes long after
// it, or never.
func (r record) counts() bool {
	if r.Verb == "watch" {
		return r.Stage == "ResponseStarted"
	}
	return r.Stage == "ResponseComplete" || r.Stage == "Panic"
}

func (r record) event() Event {
	return Event{
		Time: r.RequestReceivedTimestamp, User: r.User.Username, UserAgent: r.UserAgent, Verb: r.Verb,
		Group: r.ObjectRef.APIGroup, Resource: r.ObjectRef.Resource, Subresource: r.ObjectRef.Subresource,
		Namespace: r.ObjectRef.Namespace, Name: r.ObjectRef.Name,
		URI: r.RequestURI, Code: r.ResponseStatus.Code,
		Denied: r.Annotations["authorization.k8s.io/decision"] == "forbid",
	}
}

// Where returns the events for which keep says yes.
func (l Log) Where(keep func(Event) bool) Log {
	var kept Log
	for _, e := range l {
		if keep(e) {
			kept = append(kept, e)
		}
	}
	return kept
}

// User returns the requests of one user. A service account may be called
// "namespace/name".
func (l Log) User(name string) Log {
	if namespace, account, ok := strings.Cut(name, "/"); ok {
		name = "system:serviceaccount:" + namespace + ":" + account
	}
	return l.Where(func(e Event) bool { return e.User == name })
}

// Agent returns the requests whose user agent begins with prefix.
func (l Log) Agent(prefix string) Log {
	return l.Where(func(e Event) bool { return strings.HasPrefix(e.UserAgent, prefix) })
}

// Verb returns the requests with one of the verbs.
func (l Log) Verb(verbs ...string) Log {
	return l.Where(func(e Event) bool { return slices.Contains(verbs, e.Verb) })
}

// On returns the requests for a resource, written as "services" or, with its
// subresource, "services/status". The first does not include the second.
func (l Log) On(resource string) Log {
	return l.Where(func(e Event) bool { return e.object() == resource })
}

// Writes returns the requests that change something, refused ones included.
// What only looks like a write, as the review of a token, is left out.
func (l Log) Writes() Log {
	return l.Verb("create", "update", "patch", "delete", "deletecollection").Where(func(e Event) bool {
		return e.Group != "authentication.k8s.io" && e.Group != "authorization.k8s.io" && e.Subresource != "token"
	})
}

// Forbidden returns the requests that were refused for want of a right.
func (l Log) Forbidden() Log { return l.Where(func(e Event) bool { return e.Denied }) }

// Succeeded returns the requests that were fulfilled.
func (l Log) Succeeded() Log { return l.Where(func(e Event) bool { return e.Code/100 == 2 }) }

// object names what a request is about.
func (e Event) object() string {
	switch {
	case e.Resource == "":
		path, _, _ := strings.Cut(e.URI, "?")
		return path
	case e.Subresource == "":
		return e.Resource
	default:
		return e.Resource + "/" + e.Subresource
	}
}

// A Count says how often one kind of request was made.
type Count struct {
	User, UserAgent, Verb, Object string
	Code, N                       int
}

// Counts groups the events by who asked for what with which result, sorted,
// the most frequent first.
func (l Log) Counts() []Count {
	n := map[Count]int{}
	for _, e := range l {
		n[Count{User: e.User, UserAgent: e.UserAgent, Verb: e.Verb, Object: e.object(), Code: e.Code}]++
	}
	return slices.SortedFunc(func(yield func(Count) bool) {
		for c, times := range maps.All(n) {
			c.N = times
			if !yield(c) {
				return
			}
		}
	}, func(a, b Count) int {
		return cmp.Or(cmp.Compare(b.N, a.N), cmp.Compare(a.User, b.User), cmp.Compare(a.Object, b.Object),
			cmp.Compare(a.Verb, b.Verb), cmp.Compare(a.Code, b.Code), cmp.Compare(a.UserAgent, b.UserAgent))
	})
}

// String is a table of Counts.
func (l Log) String() string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TIMES\tUSER\tVERB\tOBJECT\tCODE\tAGENT")
	for _, c := range l.Counts() {
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%d\t%s\n", c.N, c.User, c.Verb, c.Object, c.Code, c.UserAgent)
	}
	w.Flush()
	return text.String()
}
