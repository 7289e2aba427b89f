package config_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// documentWith has one pool with these addresses.
func documentWith(items ...string) string {
	var b strings.Builder
	b.WriteString(head + "pools:\n- name: lan\n  addresses:\n")
	for _, item := range items {
		fmt.Fprintf(&b, "  - %q\n", item)
	}
	return b.String()
}

func TestAddressesAccepted(t *testing.T) {
	for item, want := range map[string]string{
		"198.51.100.40":                     "[198.51.100.40-198.51.100.40] 1 0",
		"198.51.100.40/32":                  "[198.51.100.40-198.51.100.40] 1 0",
		"198.51.100.40-198.51.100.40":       "[198.51.100.40-198.51.100.40] 1 0",
		" 198.51.100.40 - 198.51.100.45 ":   "[198.51.100.40-198.51.100.45] 6 0",
		"198.51.100.0/31":                   "[198.51.100.0-198.51.100.1] 2 0",
		"198.51.100.0/30":                   "[198.51.100.0-198.51.100.3] 4 0",
		"198.18.0.250-198.18.1.5":           "[198.18.0.250-198.18.1.5] 12 0",
		"2001:db8:100::/64":                 "[2001:db8:100::-2001:db8:100:0:ffff:ffff:ffff:ffff] 0 9223372036854775807",
		"2001:db8::/48":                     "[2001:db8::-2001:db8:0:ffff:ffff:ffff:ffff:ffff] 0 9223372036854775807",
		"2001:DB8::5-2001:db8::f":           "[2001:db8::5-2001:db8::f] 0 11",
		"2001:db8::/127":                    "[2001:db8::-2001:db8::1] 0 2",
		"2001:db8::1":                       "[2001:db8::1-2001:db8::1] 0 1",
		"198.51.100.0/24,203.0.113.0/28":    "[198.51.100.0-198.51.100.255 203.0.113.0-203.0.113.15] 272 0",
		"203.0.113.9 , 2001:db8::1":         "[203.0.113.9-203.0.113.9 2001:db8::1-2001:db8::1] 1 1",
		"198.51.100.0/25,198.51.100.128/25": "[198.51.100.0-198.51.100.255] 256 0",
		"1.0.0.0/8":                         "[1.0.0.0-1.255.255.255] 16777216 0",
	} {
		t.Run(item, func(t *testing.T) {
			p := load(t, documentWith(item)).Pools[0]
			got := fmt.Sprint(p.Ranges, p.Size(config.IPv4), p.Size(config.IPv6))
			if got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

// Each refusal quotes the item, says why, and says what would be accepted.
func TestAddressesRefused(t *testing.T) {
	for item, reason := range map[string]string{
		"198.51.100.200/28":             "host bits are set: for 198.51.100.192-198.51.100.207 write 198.51.100.192/28",
		"2001:db8::1/64":                "host bits are set: for 2001:db8::-2001:db8::ffff:ffff:ffff:ffff write 2001:db8::/64",
		"198.51.100.63-198.51.100.32":   "reversed, the first address is above the last: write 198.51.100.32-198.51.100.63",
		"2001:db8:51::f-2001:db8:51::1": "reversed, the first address is above the last: write 2001:db8:51::1-2001:db8:51::f",
		"198.51.100.40-2001:db8::1":     "one end is IPv4, the other IPv6",
		"198.51.100.180-185":            "the last address is not whole: write 198.51.100.180-198.51.100.185",
		"2001:db8::10-1f":               "the last address is not whole: write 2001:db8::10-2001:db8::1f",
		"198.51.100.180-1000":           "the last address is not whole",
		"198.51.100.20.198.51.100.25":   "two addresses without a dash between them: 198.51.100.20-198.51.100.25",
		"198.51.100.300/24":             `"198.51.100.300" is no address: IPv4 field has value >255`,
		"198.51.100.0/33":               `"33" is no prefix length from 0 to 32`,
		"2001:db8::/129":                `"129" is no prefix length from 0 to 128`,
		"198.51.100.0/-1":               `"-1" is no prefix length from 0 to 32`,
		"198.51.100.0/24/24":            `"24/24" is no prefix length from 0 to 32`,
		"198.51.100.0/024":              `"024" is no prefix length from 0 to 32`,
		"198.51.100.0/":                 `"" is no prefix length from 0 to 32`,
		"198.51.100.0/255.255.255.0":    `"255.255.255.0" is no prefix length from 0 to 32`,
		"/24":                           `"" is no address`,
		"198.51.100.0/28-198.51.100.40": "a range goes from address to address, without prefix lengths",
		"198.51.100.1-198.51.100.0/28":  "a range goes from address to address, without prefix lengths",
		"198.51.100.010":                `leading zero in "010", which some programs read as octal`,
		"198.51.100.1-198.51.100.02":    `leading zero in "02", which some programs read as octal`,
		"198.51.100":                    `"198.51.100" is no address: IPv4 address too short`,
		"198.51.100.1-":                 `"" is no address`,
		"-198.51.100.1":                 `"" is no address`,
		"198.51.100.1-198.51.100.2-3":   `"198.51.100.2-3" is no address: unexpected character`,
		"198.51.100.1 198.51.100.2":     "a blank inside: each address is an entry of its own",
		"198.51.100.1–198.51.100.2":     "the dash is not the plain one",
		"":                              "there is nothing there",
		"${VIP_RANGE}":                  "this is the mark of a template that was not filled in",
		"{{ .Values.range }}":           "this is the mark of a template that was not filled in",
		"<your range>":                  "this is the mark of a template that was not filled in",
		"lb.example.com":                `"lb.example.com" is no address`,
		"2001:db8::1%eth0":              "2001:db8::1%eth0 has a zone: an address to be given out is valid on every node",
		"::ffff:198.51.100.1":           "::ffff:198.51.100.1 is an IPv4-mapped address: write 198.51.100.1",
		"::ffff:198.51.100.1/128":       "::ffff:198.51.100.1 is an IPv4-mapped address: write 198.51.100.1",
		"0.0.0.0/0":                     "contains addresses of 0.0.0.0/8: this network",
		"0.0.0.0/32":                    "lies in 0.0.0.0/8: this network",
		"127.0.0.0/8":                   "lies in 127.0.0.0/8: loopback",
		"169.254.0.0/16":                "lies in 169.254.0.0/16: link-local",
		"224.0.0.0/4":                   "lies in 224.0.0.0/4: multicast",
		"240.0.0.1":                     "lies in 240.0.0.0/4: reserved",
		"255.255.255.255/32":            "lies in 240.0.0.0/4: reserved, and 255.255.255.255 broadcast",
		"126.255.255.255-127.0.0.1":     "contains addresses of 127.0.0.0/8: loopback",
		"::/0":                          "contains addresses of ::/128: the unspecified address",
		"::":                            "lies in ::/128: the unspecified address",
		"::1/128":                       "lies in ::1/128: loopback",
		"fe80::/64":                     "lies in fe80::/10: link-local",
		"ff00::/8":                      "lies in ff00::/8: multicast",
		"::fffe:ffff:ffff-::1:0:0:0":    "contains addresses of ::ffff:0.0.0.0/96: IPv4-mapped",
	} {
		t.Run(item, func(t *testing.T) {
			faults := faultsOf(t, documentWith("192.0.2.1", item))
			if len(faults) != 1 {
				t.Fatalf("got %v", faults)
			}
			got := faults[0]
			if got.Path != "pools[0] (lan).addresses[1]" || got.Line != 7 {
				t.Errorf("got %s in line %d", got.Path, got.Line)
			}
			quoted := fmt.Sprintf("%q: ", strings.TrimSpace(item))
			if !strings.HasPrefix(got.Message, quoted+reason) {
				t.Errorf("got  %s\nwant %s%s", got.Message, quoted, reason)
			}
			if !strings.HasSuffix(got.Message, "; accepted are addresses, CIDRs and ranges of IPv4 or IPv6, such as 192.0.2.10, 192.0.2.0/28 or 192.0.2.10-192.0.2.20") {
				t.Errorf("the accepted forms are missing: %s", got.Message)
			}
		})
	}
}

// An entry with commas is never half accepted.
func TestOneBadPartOfACommaListRefusesTheDocument(t *testing.T) {
	faults := faultsOf(t, documentWith("198.51.100.1,,198.51.100.300"))
	var got []string
	for _, fault := range faults {
		text, _, _ := strings.Cut(fault.Message, ";")
		got = append(got, fault.Path+" "+text)
	}
	want := []string{
		`pools[0] (lan).addresses[0] "": there is nothing there`,
		`pools[0] (lan).addresses[0] "198.51.100.300": "198.51.100.300" is no address: IPv4 field has value >255`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestSpecialPurpose(t *testing.T) {
	for addr, want := range map[string]string{
		"127.0.0.1":           "loopback (RFC 1122)",
		"169.254.1.1":         "link-local (RFC 3927)",
		"0.0.0.0":             "this network (RFC 791)",
		"239.1.2.3":           "multicast (RFC 5771)",
		"255.255.255.255":     "reserved, and 255.255.255.255 broadcast (RFC 1112, RFC 919)",
		"::":                  "the unspecified address (RFC 4291)",
		"::1":                 "loopback (RFC 4291)",
		"fe80::1%eth0":        "link-local (RFC 4291)",
		"ff02::1":             "multicast (RFC 4291)",
		"::ffff:198.51.100.1": "IPv4-mapped (RFC 4291)",
		"198.51.100.1":        "",
		"10.0.0.1":            "",
		"2001:db8::1":         "",
		"fd00::1":             "",
	} {
		if got := config.SpecialPurpose(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: got %q, want %q", addr, got, want)
		}
	}
}
