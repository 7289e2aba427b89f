package config

import (
	"strings"
	"testing"
)

// verdictOn reads a document with this text about pools, and returns all that
// is wrong with it, "" if nothing.
func verdictOn(pools string) (Config, string) {
	c, err := Load([]byte("apiVersion: " + APIVersion + "\nkind: " + Kind + "\npools:\n" + pools))
	if err != nil {
		return c, err.Error()
	}
	return c, ""
}

func refusedFor(t *testing.T, pools string, words ...string) {
	t.Helper()
	_, got := verdictOn(pools)
	for _, word := range words {
		if !strings.Contains(got, word) {
			t.Errorf("%s does not name %q: %s", pools, word, got)
		}
	}
}

func TestB006FormsOfAddressesAreReadOrRefusedWithTheirPlace(t *testing.T) {
	for form, size := range map[string]uint64{"198.51.100.254": 1, "198.51.100.20 - 198.51.100.25": 6} {
		if c, wrong := verdictOn("- addresses: [" + form + "]\n"); wrong != "" || c.Pools[0].Size(IPv4) != size {
			t.Errorf("%s: %s", form, wrong)
		}
	}
	refusedFor(t, "- {name: gold, addresses: [198.51.100.1, 198.51.100.20.198.51.100.25]}\n", "pools[0] (gold).addresses[1]", "198.51.100.20-198.51.100.25")
	refusedFor(t, "- {name: gold, cidr: [198.51.100.0/28]}\n", "pools[0] (gold).cidr", "addresses")
}

func TestB007ReversedAndMixedRangesAreRefused(t *testing.T) {
	refusedFor(t, "- {name: a, addresses: [198.51.100.63-198.51.100.32]}\n", "pools[0] (a).addresses[0]", "198.51.100.63-198.51.100.32")
	refusedFor(t, "- {name: a, addresses: [\"2001:db8:51::f-2001:db8:51::1\"]}\n", "pools[0] (a).addresses[0]")
	refusedFor(t, "- {name: a, addresses: [\"198.51.100.1-2001:db8:51::1\"]}\n", "pools[0] (a).addresses[0]")
	if c, wrong := verdictOn("- addresses: [198.51.100.40-198.51.100.40]\n"); wrong != "" || c.Pools[0].Size(IPv4) != 1 {
		t.Errorf("a range of one address: %s", wrong)
	}
}

func TestB151HostBitsAreNeverMaskedInSilence(t *testing.T) {
	refusedFor(t, "- addresses: [198.51.100.200/28]\n", "198.51.100.192-198.51.100.207")
	refusedFor(t, "- addresses: [\"2001:db8:51:100::5/120\"]\n", "2001:db8:51:100::-2001:db8:51:100::ff")
}

func TestB154OverlapIsToldInTheUsersOwnTerms(t *testing.T) {
	refusedFor(t, "- {name: a, addresses: [198.51.100.32-198.51.100.60]}\n- {name: b, addresses: [198.51.100.50-198.51.100.70]}\n",
		"(a)", "(b)", "198.51.100.50-198.51.100.60")
	if _, wrong := verdictOn("- {name: a, addresses: [198.51.100.32-198.51.100.60]}\n- {name: b, addresses: [198.51.100.50-198.51.100.70]}\n"); strings.Contains(wrong, "/") {
		t.Errorf("it speaks of prefixes that nobody wrote: %s", wrong)
	}
}
