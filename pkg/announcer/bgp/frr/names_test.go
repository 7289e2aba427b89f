package frr_test

import (
	"fmt"
	"net/netip"
	"regexp"
	"testing"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp/frr"
)

// FRR takes two route maps of one name for one, and would tell two routers the
// same.
func TestNoTwoRoutersShareARouteMap(t *testing.T) {
	render := func(places ...[2]string) string {
		in := frr.Input{RouterID: netip.MustParseAddr("10.1.2.3")}
		for i, at := range places {
			p := peering(fmt.Sprint("p", i))
			p.Peer.VRF, p.Peer.Interface, p.Peer.Families = at[0], at[1], families["four"]
			if i == 0 { // the others have none, so that its tag stays what it is
				p.Routes = advertisements["plain"][:1]
			}
			in.Peerings = append(in.Peerings, frr.Peering{Peering: p})
		}
		return frr.Render(in)
	}
	first := [2]string{"", "eth9"}
	tag := regexp.MustCompile(`ccm-tag-(\d+)`).FindStringSubmatch(render(first))[1]
	places := [][2]string{
		first, {"x", "eth0"}, {"", "x-eth0"}, {"x", "y-eth0"}, {"x-y", "eth0"}, {"to", "eth0"}, {"", "to-eth0"},
		{"", "nothing"}, {"", "tag-" + tag}, {"tag", tag},
	}
	text := render(places...)
	kind := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)route-map (\S+) (in|out)$|^  network \S+ route-map (\S+)$`).FindAllStringSubmatch(text, -1) {
		name, use := m[1]+m[3], m[2]
		if before, known := kind[name]; known && (use == "out" || before == "out") {
			t.Errorf("%s is for one router and for something else:\n%s", name, text)
		}
		kind[name] = use
	}
	if want := len(places) + 2; len(kind) != want { // what is let in, and the tag
		t.Errorf("%d names of route maps, want %d:\n%s", len(kind), want, text)
	}
}
