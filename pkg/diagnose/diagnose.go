// Package diagnose judges what is known of a cluster: what in it keeps
// addresses from being announced, or will one day. It is values in, values out;
// who calls it has gathered the facts. What is not known is never taken for
// right: such a check says Unknown, and how to find out.
package diagnose

import "time"

// Verdict is the outcome of a check. Changing a value is an API change.
type Verdict string

// The verdicts.
const (
	OK      Verdict = "ok"
	Warn    Verdict = "warn"    // it works, and may not be meant
	Fail    Verdict = "fail"    // something does not work because of it
	Unknown Verdict = "unknown" // it cannot be seen from here
)

// Check is one thing that was looked at. The names in it are those of the JSON
// output; changing one is an API change.
type Check struct {
	Name    string  `json:"name"`
	Verdict Verdict `json:"verdict"`
	Seen    string  `json:"seen"`
	Do      string  `json:"do"` // empty: nothing
}

// Known is a fact, or the reason why it is not known.
type Known[T any] struct {
	Value T
	Why   string // it is not known; empty: it is
}

// Facts is what is known of a cluster. Lists are sorted by name.
type Facts struct {
	Namespace  string // of the installation
	Nodes      Known[[]Node]
	Controller Known[Lease]
	Deployment Known[Deployment]
	Announcers Known[DaemonSet]
	Config     Known[Configuration]
	Proxy      Known[Proxy]
	Pods       Known[[]Pod]
	Views      []View
	Denied     Known[[]Right]       // of our accounts, that the roles should give
	Clock      Known[time.Duration] // of the API server, ahead of ours
	Others     Known[[]string]      // objects of other products that are no Pods
}

// Node is a Node and what tells of its clock.
type Node struct {
	Name    string
	Ready   bool
	Windows bool
	Exclude *string // the value of the exclude label; nil: it is not there

	// Heartbeat is how long ago the node's Lease was renewed by the node's own
	// clock, against the clock of the API server; negative: in the future.
	Heartbeat Known[time.Duration]
}

// Lease is who leads, and for how long he has been silent.
type Lease struct {
	Holder string // empty: nobody
	Age    time.Duration
	For    time.Duration // how long it lasts
}

// Deployment is how the controllers are to run.
type Deployment struct {
	ObserveOnly bool // they write nothing, and none leads
}

// DaemonSet counts the pods of the announcer.
type DaemonSet struct {
	Wanted, Ready int
	ObserveOnly   bool // they are to announce nothing
}

// Configuration is the document that the user wrote and the one in force.
type Configuration struct {
	User, Accepted string // hashes; empty: there is none
	Faults         string // of the user's, empty: none
	IgnoreExclude  bool   // what is in force ignores the exclude label
}

// Proxy is what kube-proxy is configured to do.
type Proxy struct {
	Mode      string
	StrictARP bool
}

// Pod is a Pod on a node, as far as it may be in our way.
type Pod struct {
	Name        string // namespace/name
	Node        string
	HostNetwork bool
	Ports       []int // on the host
	Images      []string
	Ours        bool
}

// View is what the announcer on a node says.
type View struct {
	Node    string
	Why     string            // it could not be asked; empty: it was
	Members []string          // that it sees, itself included
	Config  map[string]string // hash by member; empty: not told
	Aside   []string          // links that it announces on without a default route

	// ReversePath is the rp_filter that counts for each of its links that may
	// carry announcements; a link that is missing is not known.
	ReversePath map[string]int
	MTU         int  // of the link with the Node's address, in bytes; 0: not known
	ObserveOnly bool // it announces nothing
	Announces   bool // it answers for an address, or has told a router of one
	Sessions    []Session
}

// Session is what an announcer says of its session with a router.
type Session struct {
	Peer string
	Down bool   // routes are not advertised, and should be
	Why  string // it is down, or families are left out; empty: nothing is wrong
}

// Run makes all checks, in the order in which they are worth reading.
func Run(f Facts) []Check {
	return []Check{
		controller(f), announcers(f), configuration(f), exclude(f), gossip(f), sameConfig(f),
		proxy(f), ports(f), rights(f), others(f), clocks(f), reversePath(f), mtu(f), routers(f),
	}
}

// Worst returns the gravest verdict: Fail, then Warn, then Unknown.
func Worst(checks []Check) Verdict {
	worst := OK
	rank := map[Verdict]int{OK: 0, Unknown: 1, Warn: 2, Fail: 3}
	for _, c := range checks {
		if rank[c.Verdict] > rank[worst] {
			worst = c.Verdict
		}
	}
	return worst
}

// Installed makes the checks of what is installed: the controller, the
// announcers, and the configuration.
func Installed(f Facts) []Check { return []Check{controller(f), announcers(f), configuration(f)} }
