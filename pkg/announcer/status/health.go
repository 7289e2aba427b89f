package status

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// passAtLeast is how long the loop may be silent before it counts as dead. It
// passes every 30 s at rest.
const passAtLeast = 2 * time.Minute

const osLabel = "kubernetes.io/os"

// Reasons for not being ready. Changing one is an API change.
const (
	NotSynced            = "NotSynced"            // something has not been learnt yet
	MembershipIncomplete = "MembershipIncomplete" // no other announcer was met, though there are other Nodes
	Settling             = "Settling"             // it takes part, but has started a short while ago
)

// Healthy returns nil while the loop is alive. It depends on nothing outside
// of this process: an announcer must not be restarted because the API server
// is away.
func (s *Status) Healthy(now time.Time) error {
	since := s.born
	if p := s.last.Load(); !p.Started.IsZero() {
		since = p.Started.Add(p.Took)
	}
	if silent := now.Sub(since); silent > passAtLeast {
		return fmt.Errorf("no pass of the loop has ended for %s", silent.Round(time.Second))
	}
	return nil
}

// Ready returns nil once the announcer takes part: its configuration is in
// force, everything is synced, it has met another announcer if the Nodes say
// that there are any, and it is worth as much as the others, for which it
// waits once. It stays ready without the API server.
func (s *Status) Ready() error {
	p := s.last.Load()
	switch {
	case p.known():
		if err := met(p.Snapshot); err != nil {
			return err
		}
		return s.warm()
	case p.Err != nil:
		return fmt.Errorf("%s: %w", NotSynced, p.Err)
	default:
		return errors.New(NotSynced + ": the loop has not passed yet")
	}
}

// warm tells whether a rollout may go on to the next node: the addresses of
// this one are not to be handed back while it settles.
func (s *Status) warm() error {
	if left := s.o.Warming(); left > 0 {
		return fmt.Errorf("%s: has started a short while ago, other nodes are preferred; ready in %s", Settling, left.Round(time.Second))
	}
	return nil
}

// met tells whether the announcer has met one of those that should be there.
func met(s plan.Snapshot) error {
	for _, m := range s.Members {
		if m.Name != s.Node {
			return nil
		}
	}
	others := announcers(s)
	if len(others) == 0 {
		return nil
	}
	return fmt.Errorf("%s: has met no other announcer, though there should be one on %s", MembershipIncomplete, few(others))
}

// announcers returns the other Nodes on which an announcer is of use.
func announcers(s plan.Snapshot) []string {
	var names []string
	for _, n := range s.Nodes {
		if n.Name != s.Node && !n.Deleting && n.Labels[osLabel] != "windows" && selected(s, n) {
			names = append(names, n.Name)
		}
	}
	return names
}

func selected(s plan.Snapshot, n plan.Node) bool {
	for _, ad := range s.Config.Advertisements {
		if ad.NodeSelector.Matches(n.Labels) {
			return true
		}
	}
	return false
}

// few names at most three of a list.
func few(names []string) string {
	const most = 3
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// answer writes ok, or the error with 503.
func answer(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintln(w, err)
		return
	}
	fmt.Fprintln(w, "ok")
}
