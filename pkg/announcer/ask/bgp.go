package ask

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/status"
)

// Sessions is the output of bgp. The names in it are those of the JSON
// output; changing one is an API change. Lists are never null.
type Sessions struct {
	Node     string    `json:"node"` // that was asked
	Sessions []Session `json:"sessions"`

	now time.Time // of the page
}

// Session is a session with a router.
type Session struct {
	Peer     string            `json:"peer"`
	Address  string            `json:"address"`
	Port     int               `json:"port"`
	ASN      uint32            `json:"asn"` // the router's, 0 before it has said it
	LocalASN uint32            `json:"localASN"`
	RouterID string            `json:"routerID"` // ours; empty: what FRR chooses
	Local    string            `json:"local"`    // our end; empty: there has been none
	State    string            `json:"state"`
	Since    time.Time         `json:"since"`
	Why      string            `json:"why"` // what keeps it from coming up, or ended the one before
	Families []string          `json:"families"`
	Mute     map[string]string `json:"mute"` // families that are configured and not sent, with the reason
	BFD      string            `json:"bfd"`  // up, down or another word; empty: there is none
	Wanted   int               `json:"wanted"`
	Routes   []Route           `json:"routes"`
}

// Route is what a router has been told of one prefix.
type Route struct {
	Prefix         string   `json:"prefix"`
	Communities    []string `json:"communities"`
	LocalPref      uint32   `json:"localPref"` // internal routers only are told
	Services       []string `json:"services"`
	Advertisements []string `json:"advertisements"`
	Conflict       []string `json:"conflict"` // advertisements whose localPref does not count
}

func newBGPCommand(o Options) *cobra.Command {
	return o.command(&cobra.Command{
		Use:     "bgp [PEER]",
		Short:   "Show the sessions with routers, and what they are told",
		Long:    bgpHelp,
		Example: bgpExamples,
		Args:    cobra.MaximumNArgs(1),
	}, func(p status.Plan, args []string) (printer, error) {
		list := NewSessions(p)
		if len(args) == 0 {
			return list, nil
		}
		if list.Sessions = only(list.Sessions, args[0]); len(list.Sessions) == 0 {
			return nil, fmt.Errorf("%s has no session with a peer %q", list.Node, args[0])
		}
		return list, nil
	})
}

func only(all []Session, peer string) []Session {
	return slices.DeleteFunc(all, func(s Session) bool { return s.Peer != peer })
}

// NewSessions returns the sessions that a plan shows, by peer.
func NewSessions(p status.Plan) Sessions {
	list := Sessions{Node: p.World.Node, Sessions: []Session{}, now: p.Time}
	for _, b := range p.BGP {
		s := Session{
			Peer: b.Peer, Address: b.Address, Port: b.Port, ASN: b.ASN, LocalASN: b.LocalASN, RouterID: b.RouterID, Local: b.Local,
			State: b.State, Since: b.Since, Why: b.Why, Families: []string{}, Mute: map[string]string{}, BFD: b.BFD, Wanted: b.Wanted, Routes: []Route{},
		}
		for _, f := range b.Families {
			s.Families = append(s.Families, string(f))
		}
		for f, why := range b.Mute {
			s.Mute[string(f)] = why
		}
		for _, r := range b.Advertised {
			s.Routes = append(s.Routes, newRoute(r))
		}
		list.Sessions = append(list.Sessions, s)
	}
	return list
}

func newRoute(r plan.Route) Route {
	out := Route{
		Prefix: r.Prefix.String(), Communities: []string{}, LocalPref: r.LocalPref,
		Services: append([]string{}, r.Services...), Advertisements: append([]string{}, r.Advertisements...), Conflict: append([]string{}, r.Conflict...),
	}
	for _, c := range r.Communities {
		out.Communities = append(out.Communities, c.String())
	}
	return out
}

// Print shows the sessions as they were at the time of the last pass.
func (l Sessions) Print(w io.Writer) error {
	if len(l.Sessions) == 0 {
		_, err := fmt.Fprintf(w, "%s speaks with no router: no peer in the configuration selects it\n", l.Node)
		return err
	}
	var b strings.Builder
	for i, s := range l.Sessions {
		if i > 0 {
			fmt.Fprintln(&b)
		}
		s.print(&b, l.now)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (s Session) print(w io.Writer, now time.Time) {
	asn := ""
	if s.ASN > 0 {
		asn = fmt.Sprintf(", AS %d", s.ASN)
	}
	fmt.Fprintf(w, "%s, %s port %d%s\n", s.Peer, s.Address, s.Port, asn)
	state := s.State
	if age := now.Sub(s.Since).Round(time.Second); age > 0 {
		state += " for " + age.String()
	}
	if s.Why != "" {
		state += ": " + s.Why
	}
	line(w, "state", state)
	here := strings.TrimPrefix(fmt.Sprintf("%s, AS %d", s.Local, s.LocalASN), ", ")
	if s.RouterID != "" {
		here += ", router ID " + s.RouterID
	}
	line(w, "here", here)
	if s.BFD != "" {
		line(w, "BFD", s.BFD)
	}
	for _, f := range slices.Sorted(maps.Keys(s.Mute)) {
		line(w, "not sent", f+": "+s.Mute[f])
	}
	for i, r := range s.Routes {
		line(w, title(i, fmt.Sprintf("told %d of %d", len(s.Routes), s.Wanted)), r.String())
	}
	if len(s.Routes) == 0 {
		line(w, fmt.Sprintf("told 0 of %d", s.Wanted), "nothing")
	}
}

// String shows the route to people.
func (r Route) String() string {
	text := fmt.Sprintf("%s for %s by %s", r.Prefix, strings.Join(r.Services, ", "), strings.Join(r.Advertisements, ", "))
	if len(r.Communities) > 0 {
		text += ", communities " + strings.Join(r.Communities, " ")
	}
	if r.LocalPref != 100 {
		text += fmt.Sprintf(", preference %d", r.LocalPref)
	}
	if len(r.Conflict) > 0 {
		text += "; the preference of " + strings.Join(r.Conflict, ", ") + " does not count"
	}
	return text
}
