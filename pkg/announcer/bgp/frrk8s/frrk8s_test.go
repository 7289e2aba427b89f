package frrk8s_test

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp/frrk8s"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

var both = []config.Family{config.IPv4, config.IPv6}

// rendered is the FRRConfiguration of some peerings.
func rendered(peerings ...plan.Peering) frrk8s.Object {
	return frrk8s.Render(frrk8s.Input{Node: node, Namespace: "frr-k8s-system", Peerings: peerings})
}

func TestOrderOfTheDocumentMakesNoDifference(t *testing.T) {
	a, b, c := peering("four", both, "rich"), peering("six", both, "plain"), peering("wire", both, "rich")
	b.Peer.VRF = "red"
	if diff := cmp.Diff(rendered(a, b, c), rendered(c, b, a)); diff != "" {
		t.Error(diff)
	}
}

// frr-k8s takes nothing of an object in which one VRF has two AS numbers, two
// router IDs or a neighbor twice.
func TestWhoLeavesGivesWay(t *testing.T) {
	for name, differ := range map[string]func(*config.Peer){
		"another AS number": func(p *config.Peer) { p.Address, p.LocalASN = p.Address.Next(), 64999 },
		"another router ID": func(p *config.Peer) { p.Address, p.RouterID = p.Address.Next(), netip.MustParseAddr("10.0.0.9") },
		"the same router":   func(p *config.Peer) { p.Port = 1179 },
	} {
		stays, leaves := peering("four", both, "plain"), peering("four", both, "plain")
		differ(&leaves.Peer)
		leaves.Leaving = plan.Draining
		if diff := cmp.Diff(rendered(stays), rendered(leaves, stays)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		leaves.Peer.VRF = "red"
		if got := rendered(leaves, stays).Spec.BGP.Routers; len(got) != 2 {
			t.Errorf("%s in another VRF: %v", name, got)
		}
	}
}

func TestB132LocalPreferenceIsForInternalPeersOnly(t *testing.T) {
	for asn, want := range map[uint32]int{64500: 3, 64501: 0} {
		p := peering("four", both, "rich")
		p.Peer.ASN = asn
		if got := rendered(p).Spec.BGP.Routers[0].Neighbors[0].ToAdvertise.WithLocalPref; len(got) != want {
			t.Errorf("AS %d: %v", asn, got)
		}
	}
}

func TestNothingIsTakenFromPeers(t *testing.T) {
	for policy := range policies {
		for _, r := range object(policy, "rich", "").Spec.BGP.Routers {
			for _, n := range r.Neighbors {
				if a := n.ToReceive.Allowed; a.Mode != "filtered" || len(a.Prefixes) > 0 {
					t.Errorf("%s: %+v", policy, a)
				}
			}
		}
	}
}

// live is an object as an API server returns it, after some changes.
func live(t *testing.T, o frrk8s.Object, change func(neighbor map[string]any, whole map[string]any)) *frrk8s.Live {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	var whole map[string]any
	if err := json.Unmarshal(text, &whole); err != nil {
		t.Fatal(err)
	}
	router := whole["spec"].(map[string]any)["bgp"].(map[string]any)["routers"].([]any)[0].(map[string]any)
	change(router["neighbors"].([]any)[0].(map[string]any), whole)
	if text, err = json.Marshal(whole); err != nil {
		t.Fatal(err)
	}
	l, err := frrk8s.ReadLive(text)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestWhatDiffersFromTheObjectThatIsThere(t *testing.T) {
	o := object("internal", "rich", "")
	for name, c := range map[string]struct {
		same   bool
		change func(neighbor, whole map[string]any)
	}{
		"nothing":                {true, func(_, _ map[string]any) {}},
		"a default of later":     {true, func(n, _ map[string]any) { n["new"] = false; n["more"] = map[string]any{"x": ""} }},
		"others' labels":         {true, func(_, w map[string]any) { labels(w)["team"] = "edge" }},
		"a default of frr-k8s":   {true, func(n, _ map[string]any) { n["disableMP"] = false }},
		"separate sessions":      {false, func(n, _ map[string]any) { n["disableMP"] = true }},
		"another port":           {false, func(n, _ map[string]any) { n["port"] = 180 }},
		"routes are let in":      {false, func(n, _ map[string]any) { n["toReceive"] = map[string]any{"allowed": map[string]any{"mode": "all"}} }},
		"a password":             {false, func(n, _ map[string]any) { n["password"] = "x" }},
		"a hold time that is no": {false, func(n, _ map[string]any) { delete(n, "holdTime") }},
		"raw text":               {false, func(_, w map[string]any) { w["spec"].(map[string]any)["raw"] = map[string]any{"rawConfig": "x"} }},
		"another node":           {false, func(_, w map[string]any) { w["spec"].(map[string]any)["nodeSelector"] = map[string]any{} }},
		"our label":              {false, func(_, w map[string]any) { delete(labels(w), frrk8s.ManagedBy) }},
		"the owner":              {false, func(_, w map[string]any) { delete(w["metadata"].(map[string]any), "ownerReferences") }},
	} {
		if got := live(t, o, func(n, w map[string]any) { c.change(n, w) }).Has(o); got != c.same {
			t.Errorf("%s: got %t", name, got)
		}
	}
}

func labels(whole map[string]any) map[string]any {
	return whole["metadata"].(map[string]any)["labels"].(map[string]any)
}

func TestSessionsAreReadBack(t *testing.T) {
	got, err := frrk8s.ReadSession([]byte(`{"status": {"node": "n1", "vrf": "red", "peer": "192.0.2.1", "bgpStatus": "Active", "bfdStatus": "N/A"}}`))
	if want := (frrk8s.Session{VRF: "red", Peer: "192.0.2.1", BGP: "Active"}); err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err = frrk8s.ReadSession([]byte(`{"status": {"bfdStatus": "Down"}}`)); err != nil || got.BFD != "down" {
		t.Errorf("got %+v, %v", got, err)
	}
	for place, want := range map[string]string{"four": "192.0.2.1", "six": "2001-0db8-0000-0000-0000-0000-0000-0001", "wire": "eth1"} {
		if got := frrk8s.PeerName(peering(place, both, "plain").Peer); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

const running = `Current configuration:
!
frr version 10.3
router bgp 64500
 no bgp default ipv4-unicast
 neighbor 192.0.2.1 remote-as 64501
 !
 address-family ipv4 unicast
  network 198.51.100.1/32
  neighbor 192.0.2.1 activate
 exit-address-family
exit
!
router bgp 64500 vrf red
 address-family ipv6 unicast
  network 2001:db8:1::1/128
 exit-address-family
exit
!
router ospf
 network 203.0.113.0/24 area 0
exit
`

func TestStateOfTheNodeIsReadBack(t *testing.T) {
	read := func(conversion, reload string) frrk8s.NodeState {
		text, err := json.Marshal(map[string]any{"status": map[string]string{
			"runningConfig": running, "lastConversionResult": conversion, "lastReloadResult": reload,
		}})
		if err != nil {
			t.Fatal(err)
		}
		s, err := frrk8s.ReadNodeState(text)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	want := map[frrk8s.Network]bool{
		{Prefix: netip.MustParsePrefix("198.51.100.1/32")}:               true,
		{VRF: "red", Prefix: netip.MustParsePrefix("2001:db8:1::1/128")}: true,
	}
	if got := read("success", "success"); got.Fault != "" || !cmp.Equal(got.Running, want, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })) {
		t.Errorf("got %+v", got)
	}
	if got := read("failed: secret\nnot found", "success").Fault; !strings.HasSuffix(got, ": failed: secret not found") {
		t.Errorf("got %q", got)
	}
	if got := read("success", strings.Repeat("x ", 9999)).Fault; !strings.HasPrefix(got, "FRR has not taken") || len(got) > 400 {
		t.Errorf("got %q", got)
	}
	if got := read("", "").Fault; !strings.Contains(got, "does not say why") {
		t.Errorf("got %q", got)
	}
}

func TestSecretsThatFRRCannotUseAreNotReferredTo(t *testing.T) {
	secret := func(kind, key, value string) []byte {
		text, err := json.Marshal(map[string]any{"type": kind, "data": map[string][]byte{key: []byte(value)}})
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	const basic = "kubernetes.io/basic-auth"
	if err := frrk8s.CheckSecret(secret(basic, "password", strings.Repeat("x", 80))); err != nil {
		t.Error(err)
	}
	for want, text := range map[string][]byte{
		"its type is Opaque": secret("Opaque", "password", "hush"),
		"no password":        secret(basic, "username", "hush"),
		"line break":         secret(basic, "password", "hush\n"),
		"more than 80":       secret(basic, "password", strings.Repeat("hush", 21)),
		"cannot be read":     []byte("hush"),
	} {
		err := frrk8s.CheckSecret(text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hush") {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

// Profiles of one name that differ, ours or somebody else's, would make frr-k8s
// take nothing.
func TestBFDProfilesThatDifferHaveOtherNames(t *testing.T) {
	var peerings []plan.Peering
	for i := range 3 {
		p := peering("four", both, "plain")
		for range i {
			p.Peer.Address = p.Peer.Address.Next()
		}
		p.Peer.BFD = &config.BFDProfile{Name: "fast", DetectMultiplier: 3 + i/2, ReceiveInterval: 10 * time.Millisecond}
		peerings = append(peerings, p)
	}
	bgp := rendered(peerings...).Spec.BGP
	names := []string{bgp.BFDProfiles[0].Name, bgp.BFDProfiles[1].Name}
	used := []string{}
	for _, n := range bgp.Routers[0].Neighbors {
		used = append(used, n.BFDProfile)
	}
	if len(bgp.BFDProfiles) != 2 || names[0] == names[1] || !slices.Equal(used, []string{names[0], names[0], names[1]}) {
		t.Errorf("profiles %q, used %q", names, used)
	}
}
