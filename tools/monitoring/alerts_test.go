package monitoring

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
)

const alertsFile = "../../manifests/monitoring/alerts.yaml"

// A scene is an hour and a half of samples, one a minute, in which an alert
// fires or does not.
type scene struct {
	what, alert, series string
	fires               []string // the summaries, sorted; none: silence
}

var scenes = []scene{
	{"nine of ten addresses", "CCMBaremetalPoolAlmostFull", `
		ccm_baremetal_pool_addresses{pool="a",family="IPv4"} 10x90
		ccm_baremetal_pool_addresses_used{pool="a",family="IPv4"} 9x90
		ccm_baremetal_pool_addresses{pool="b",family="IPv4"} 10x90
		ccm_baremetal_pool_addresses_used{pool="b",family="IPv4"} 8x90`, []string{"90 % of the IPv4 addresses of pool a are in use"}},
	{"a pool that is empty by itself", "CCMBaremetalPoolExhausted", `
		ccm_baremetal_pool_addresses{pool="a",family="IPv6"} 0x90
		ccm_baremetal_pool_addresses_used{pool="a",family="IPv6"} 0x90`, nil},
	{"the last address is given out", "CCMBaremetalPoolExhausted", `
		ccm_baremetal_pool_addresses{pool="a",family="IPv4"} 10x90
		ccm_baremetal_pool_addresses_used{pool="a",family="IPv4"} 9x30 10x59`, []string{"pool a has no IPv4 address left"}},
	{"one is left", "CCMBaremetalPoolExhausted", `
		ccm_baremetal_pool_addresses{pool="a",family="IPv4"} 10x90
		ccm_baremetal_pool_addresses_used{pool="a",family="IPv4"} 9x90`, nil},
	{"Services wait", "CCMBaremetalServicesWaiting", `
		ccm_baremetal_services_waiting{reason="PoolExhausted"} 2x90`, []string{"2 Services do not have what they ask for: PoolExhausted"}},
	{"Services waited for a moment", "CCMBaremetalServicesWaiting", `
		ccm_baremetal_services_waiting{reason="PoolExhausted"} 0x82 2x5`, nil},
	{"a document was refused", "CCMBaremetalConfigurationStale", `
		ccm_baremetal_config_stale{instance="a"} 1x90`, []string{"the configuration document was refused, and an older one is in force"}},
	{"it was mended", "CCMBaremetalConfigurationStale", `
		ccm_baremetal_config_stale{instance="a"} 1x80 0x9`, nil},
	{"two that do not lead", "CCMBaremetalWithoutLeader", `
		leader_election_master_status{name="ccm-baremetal",instance="a"} 0x90
		leader_election_master_status{name="ccm-baremetal",instance="b"} 0x90`, []string{"no ccm-baremetal leads: new Services get no address"}},
	{"none at all", "CCMBaremetalWithoutLeader", `
		up 1x90`, []string{"no ccm-baremetal leads: new Services get no address"}},
	{"one of two leads", "CCMBaremetalWithoutLeader", `
		leader_election_master_status{name="ccm-baremetal",instance="a"} 0x90
		leader_election_master_status{name="ccm-baremetal",instance="b"} 1x90`, nil},
	{"no node fits", "AnnouncerNobodyAnnounces", `
		announcer_addresses{reason="NoEligibleNode",instance="a"} 3x90
		announcer_addresses{reason="NoEligibleNode",instance="b"} 3x90`, []string{"3 addresses are announced by nobody: NoEligibleNode"}},
	{"another node is the owner", "AnnouncerNobodyAnnounces", `
		announcer_addresses{reason="NotOwner",instance="a"} 3x90`, nil},
	{"no advertisement selects an address", "AnnouncerNobodyAnnounces", `
		announcer_addresses{reason="NoAdvertisement",instance="a"} 1x90`, []string{"1 addresses are announced by nobody: NoAdvertisement"}},
	{"no announcer is ready", "AnnouncerNoneReady", `
		announcer_ready{instance="a"} 0x90`, []string{"no announcer is ready"}},
	{"one of two is ready", "AnnouncerNoneReady", `
		announcer_ready{instance="a"} 0x90
		announcer_ready{instance="b"} 1x90`, nil},
	{"a stranger answers", "AnnouncerAddressConflict", `
		announcer_layer2_conflict{address="192.0.2.1",link="eth0",mac="02:00:00:00:00:01",node="",cause="stranger"} 1x90`,
		[]string{"02:00:00:00:00:01 answers for 192.0.2.1 too (stranger)"}},
	{"the stranger has gone", "AnnouncerAddressConflict", `
		announcer_layer2_conflict{address="192.0.2.1",link="eth0",mac="02:00:00:00:00:01",node="",cause="stranger"} 1x80 stale`, nil},
	{"one of three is not a member", "AnnouncerMembersMissing", `
		announcer_members{instance="a"} 2x90
		announcer_members{instance="b"} 2x90
		kube_daemonset_status_desired_number_scheduled{daemonset="announcer"} 3x90`, []string{"an announcer sees 2 announcers, fewer than there should be"}},
	{"another DaemonSet is larger", "AnnouncerMembersMissing", `
		announcer_members{instance="a"} 3x90
		kube_daemonset_status_desired_number_scheduled{daemonset="announcer"} 3x90
		kube_daemonset_status_desired_number_scheduled{daemonset="other"} 9x90`, nil},
	{"a move each minute for ten Services", "AnnouncerAddressesWander", `
		announcer_moves_total{cause="dead",instance="a"} 0+1x90
		announcer_services{instance="a"} 10x90`, []string{"60 moves of addresses in an hour: more than three for each Service"}},
	{"a drain of a node with everything", "AnnouncerAddressesWander", `
		announcer_moves_total{cause="draining",instance="a"} 0x60 10x29
		announcer_services{instance="a"} 10x90`, nil},
	{"a router is silent", "AnnouncerBGPSessionDown", `
		announcer_bgp_session_up{peer="tor-a",instance="n1"} 0x90
		announcer_bgp_session_up{peer="tor-b",instance="n1"} 1x90`, []string{"n1 has no BGP session with tor-a"}},
	{"a node is drained", "AnnouncerBGPSessionDown", `
		announcer_bgp_session_up{peer="tor-a",instance="n1"} 1x10 stale`, nil},
	{"a session came back", "AnnouncerBGPSessionDown", `
		announcer_bgp_session_up{peer="tor-a",instance="n1"} 0x80 1x9`, nil},
	{"one has not followed", "AnnouncerConfigurationsDiffer", `
		announcer_config_info{hash="1",instance="a"} 1x90
		announcer_config_info{hash="1",instance="b"} 1x90
		announcer_config_info{hash="2",instance="c"} 1x90`, []string{"announcers have 2 different configurations in force"}},
	{"all have the same", "AnnouncerConfigurationsDiffer", `
		announcer_config_info{hash="1",instance="a"} 1x90
		announcer_config_info{hash="1",instance="b"} 1x90`, nil},
}

func TestAlerts(t *testing.T) {
	for _, s := range scenes {
		t.Run(s.alert+"/"+s.what, func(t *testing.T) {
			if got := play(t, s); !slices.Equal(got, s.fires) {
				t.Errorf("fires %q, want %q", got, s.fires)
			}
		})
	}
}

// Each alert is seen to fire, and to keep silent.
func TestEveryAlertHasScenes(t *testing.T) {
	seen := map[string]int{}
	for _, s := range scenes {
		if len(s.fires) > 0 {
			seen[s.alert] |= 1
		} else {
			seen[s.alert] |= 2
		}
	}
	for _, g := range groups(t, load(t, "")) {
		for _, r := range g.Rules() {
			want := 3
			if r.Name() == "CCMBaremetalPoolAlmostFull" {
				want = 1 // its scene has a pool of each kind
			}
			if seen[r.Name()] != want {
				t.Errorf("%s: scenes %b", r.Name(), seen[r.Name()])
			}
		}
	}
}

func load(t *testing.T, series string) *promqltest.LazyLoader {
	t.Helper()
	loader, err := promqltest.NewLazyLoader("load 1m\n"+strings.TrimLeft(series, "\n")+"\n", promqltest.LazyLoaderOpts{
		EnableAtModifier: true, EnableNegativeOffset: true, Parser: parser.NewParser(parser.Options{}),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = loader.Close() })
	return loader
}

func groups(t *testing.T, loader *promqltest.LazyLoader) []*rules.Group {
	t.Helper()
	var all map[string]*rules.Group
	loader.WithSamplesTill(time.Unix(0, 0), func(err error) {
		if err != nil {
			t.Fatal(err)
		}
		m := rules.NewManager(&rules.ManagerOptions{
			QueryFunc:    rules.EngineQueryFunc(loader.QueryEngine(), loader.Storage()),
			AppendableV2: loader.Storage(), Context: context.Background(),
			NotifyFunc: func(context.Context, string, ...*rules.Alert) {},
			Logger:     slog.New(slog.DiscardHandler), Parser: parser.NewParser(parser.Options{}),
		})
		loaded, errs := m.LoadGroups(time.Minute, labels.EmptyLabels(), "", nil, false, alertsFile)
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		all = loaded
	})
	var sorted []*rules.Group
	for _, name := range slices.Sorted(maps.Keys(all)) {
		sorted = append(sorted, all[name])
	}
	return sorted
}

// play evaluates the rules each minute and returns the summaries of the scene's
// alert that fire at the end.
func play(t *testing.T, s scene) []string {
	t.Helper()
	loader := load(t, s.series)
	all := groups(t, loader)
	for _, g := range all {
		for _, r := range g.Rules() {
			r.(*rules.AlertingRule).SetRestored(true)
		}
	}
	for at := time.Unix(0, 0).UTC(); !at.After(time.Unix(0, 0).Add(88 * time.Minute)); at = at.Add(time.Minute) {
		loader.WithSamplesTill(at, func(err error) {
			if err != nil {
				t.Fatal(err)
			}
			for _, g := range all {
				g.Eval(loader.Context(), at)
			}
		})
	}
	var fire []string
	for _, g := range all {
		for _, r := range g.Rules() {
			if r.LastError() != nil {
				t.Error(fmt.Errorf("%s: %w", r.Name(), r.LastError()))
			}
			alerting := r.(*rules.AlertingRule)
			if r.Name() != s.alert {
				continue
			}
			for _, a := range alerting.ActiveAlerts() {
				if a.State == rules.StateFiring {
					fire = append(fire, a.Annotations.Get("summary"))
				}
			}
		}
	}
	slices.Sort(fire)
	return fire
}
