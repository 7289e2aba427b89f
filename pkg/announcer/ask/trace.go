package ask

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/replay"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/status"
)

// traceAtMost bounds a trace, in events.
const traceAtMost = 100_000

// replayed is the output of simulate --trace. The names in it are those of the
// JSON output; changing one is an API change. Lists are never null.
type replayed struct {
	Addresses int          `json:"addresses"` // that an announcer owns
	Events    int          `json:"events"`
	Settle    string       `json:"settle"` // membership.settle
	Moves     []timedMove  `json:"moves"`
	PlainHash int          `json:"plainHash"` // moves if nobody settled
	ByAddress []moveCounts `json:"byAddress"` // those that move under either rule
}

// timedMove is a move some time after the beginning of a trace.
type timedMove struct {
	At      string     `json:"at"` // as time.Duration prints it
	Address netip.Addr `json:"address"`
	From    string     `json:"from"` // empty: nobody
	To      string     `json:"to"`   // empty: nobody
}

// moveCounts is how often one address moves.
type moveCounts struct {
	Address   netip.Addr `json:"address"`
	Moves     int        `json:"moves"`
	PlainHash int        `json:"plainHash"`
}

// replayTrace replays the departures in a file for the announcers and the
// addresses of a plan.
func replayTrace(p status.Plan, file string) (replayed, error) {
	s, err := p.Snapshot()
	if err != nil {
		return replayed{}, err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return replayed{}, fmt.Errorf("--trace: %w", err)
	}
	trace := replay.Trace{Detection: replay.Silence(s.Config.Membership.Detection), Sync: replay.Sync}
	for _, m := range s.Members {
		trace.Nodes = append(trace.Nodes, m.Name)
	}
	for _, v := range plan.Decide(s) {
		if v.Owner != "" {
			trace.Addresses = append(trace.Addresses, v.Address)
		}
	}
	if trace.Events, err = parseTrace(string(text), trace.Nodes); err != nil {
		return replayed{}, fmt.Errorf("--trace: %s: %w", file, err)
	}
	settle := s.Config.Membership.Settle
	out := replayed{Addresses: len(trace.Addresses), Events: len(trace.Events), Settle: settle.String(), Moves: []timedMove{}, ByAddress: []moveCounts{}}
	moves, plain := replay.Moves(trace, replay.Rule{Settle: settle}), replay.Moves(trace, replay.Rule{})
	for _, m := range moves {
		out.Moves = append(out.Moves, timedMove{m.At.String(), m.Address, m.From, m.To})
	}
	out.PlainHash = len(plain)
	often, plainly := byAddress(moves), byAddress(plain)
	for _, address := range trace.Addresses {
		if n, p := often[address], plainly[address]; n+p > 0 {
			out.ByAddress = append(out.ByAddress, moveCounts{address, n, p})
		}
	}
	return out, nil
}

// byAddress counts the moves of each address.
func byAddress(moves []replay.Move) map[netip.Addr]int {
	counts := map[netip.Addr]int{}
	for _, m := range moves {
		counts[m.Address]++
	}
	return counts
}

// parseTrace reads lines such as "1h5m n1 restart 4s". Empty lines and what
// follows # do not count. It reports all faults at once, each with its line.
func parseTrace(text string, nodes []string) ([]replay.Event, error) {
	var events []replay.Event
	var errs []error
	number := 0
	for line := range strings.Lines(text) {
		number++
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		e, err := parseEvent(fields, nodes)
		if err != nil {
			errs = append(errs, fmt.Errorf("line %d: %w", number, err))
		}
		events = append(events, e)
	}
	if len(events) > traceAtMost {
		errs = append(errs, fmt.Errorf("%d events are more than %d", len(events), traceAtMost))
	}
	if len(events) == 0 {
		errs = append(errs, errors.New(`no event in it; one is a line such as "1h5m n1 restart 4s"`))
	}
	return events, errors.Join(errs...)
}

func parseEvent(fields, nodes []string) (replay.Event, error) {
	if len(fields) != 4 {
		return replay.Event{}, fmt.Errorf(`%q is not TIME NODE restart|stall DURATION, for example "1h5m n1 restart 4s"`, strings.Join(fields, " "))
	}
	at, atErr := time.ParseDuration(fields[0])
	long, longErr := time.ParseDuration(fields[3])
	kind := replay.Kind(fields[2])
	var errs []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	fault(atErr != nil || at < 0, "%q is no time since the beginning, such as 1h5m", fields[0])
	fault(!slices.Contains(nodes, fields[1]), "there is no live announcer on %s", fields[1])
	fault(kind != replay.Restart && kind != replay.Stall, "%q is neither restart nor stall", fields[2])
	fault(longErr != nil || long <= 0, "%q is no duration above zero, such as 4s", fields[3])
	return replay.Event{At: at, Node: fields[1], Kind: kind, For: long}, errors.Join(errs...)
}

// Print shows how often each address moves.
func (r replayed) Print(w io.Writer) error {
	fmt.Fprintf(w, "%d moves of %d addresses in %d events, settling for %s; %d if nobody settled\n",
		len(r.Moves), r.Addresses, r.Events, r.Settle, r.PlainHash)
	if len(r.ByAddress) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "ADDRESS\tMOVES\tPLAIN HASH")
	for _, a := range r.ByAddress {
		fmt.Fprintf(t, "%s\t%d\t%d\n", a.Address, a.Moves, a.PlainHash)
	}
	if len(r.Moves) > 0 {
		fmt.Fprintln(t, "\nAT\tADDRESS\tFROM\tTO")
	}
	for _, m := range r.Moves {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", m.At, m.Address, cmp.Or(m.From, "nobody"), cmp.Or(m.To, "nobody"))
	}
	return t.Flush()
}
