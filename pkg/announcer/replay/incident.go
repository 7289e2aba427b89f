package replay

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// Incident describes what happened to a real cluster: the announcer of one
// node was restarted 360 times in a day, and what its addresses were sent to
// changed 1,275 times. The zero values are those of that day.
type Incident struct {
	Nodes     int // 0: 8
	Addresses int // 0: 10
	Events    int // of each bad node; 0: 360
	Bursts    int // 0: spread over the day
	Kind      Kind
	Bad       []int // which nodes, from 0 on

	// Random returns a duration from zero up to, but without, most. Equal
	// answers make equal traces.
	Random func(most time.Duration) time.Duration
}

const (
	day = 24 * time.Hour

	// pace is how close events of a burst are, on average.
	pace = 10 * time.Second
)

// Trace returns what happens in an incident.
func (i Incident) Trace() Trace {
	t := Trace{Detection: Silence(config.Fast), Sync: Sync}
	for n := range orDefault(i.Nodes, 8) {
		t.Nodes = append(t.Nodes, fmt.Sprintf("n%d", n+1))
	}
	address := netip.AddrFrom4([4]byte{192, 0, 2, 10})
	for range orDefault(i.Addresses, 10) {
		t.Addresses = append(t.Addresses, address)
		address = address.Next()
	}
	for _, bad := range i.Bad {
		for e := range orDefault(i.Events, 360) {
			t.Events = append(t.Events, Event{At: i.when(e), Node: t.Nodes[bad], Kind: i.Kind, For: i.long()})
		}
	}
	slices.SortStableFunc(t.Events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	return t
}

// when returns the time of an event: anywhere in the day, or in its burst.
func (i Incident) when(event int) time.Duration {
	if i.Bursts == 0 {
		return i.Random(day)
	}
	each := orDefault(i.Events, 360) / i.Bursts
	apart := day / time.Duration(i.Bursts)
	return time.Duration(min(event/each, i.Bursts-1))*apart + i.Random(pace*time.Duration(each))
}

// long returns for how long a node is away: a stall lasts a second, and a
// restart a few.
func (i Incident) long() time.Duration {
	if i.Kind == Stall {
		return time.Second
	}
	return time.Second + i.Random(4*time.Second)
}

func orDefault(n, otherwise int) int {
	if n == 0 {
		return otherwise
	}
	return n
}
