package config

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func TestVerdictConfirmsWhatWasGivenAndNothingElse(t *testing.T) {
	v4, v6 := netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("2001:db8::10")
	both := []Confirmation{{Address: v4, Pool: "public"}, {Address: v6, Pool: "six"}}
	for name, c := range map[string]struct {
		confirmed []Confirmation
		remarks   []string
		message   string
	}{
		"nothing": {nil, []string{"no IPv4 address: there are no pools"}, "no IPv4 address: there are no pools"},
		"both":    {both, nil, `192.0.2.10 from pool "public"; 2001:db8::10 from pool "six"`},
		"a note": {[]Confirmation{{Address: v4, Pool: "public", Note: `kept though pool "public" is disabled`}}, nil,
			`192.0.2.10 from pool "public", kept though pool "public" is disabled`},
		"no pool": {[]Confirmation{{Address: v4, Note: "kept though it is in no pool any more"}}, nil,
			"192.0.2.10, kept though it is in no pool any more"},
		"bare": {[]Confirmation{{Address: v6}}, nil, "2001:db8::10"},
		"a remark that begins with an address": {both[:1], []string{"2001:db8::66 is in use by web/other"},
			`192.0.2.10 from pool "public"; address 2001:db8::66 is in use by web/other`},
		"a remark that quotes a separator": {both[:1], []string{`addresses: "x; 192.0.2.66 y" is not an address`},
			`192.0.2.10 from pool "public"; addresses: "x, 192.0.2.66 y" is not an address`},
	} {
		message := Verdict(c.confirmed, c.remarks...)
		if message != c.message {
			t.Errorf("%s: %s\nwant %s", name, message, c.message)
		}
		if got := Confirmed(message); !slices.Equal(got, bare(c.confirmed)) {
			t.Errorf("%s: %q confirms %+v", name, message, got)
		}
		more := WithRemark(message, "192.0.2.66 and; 192.0.2.67")
		if got := Confirmed(more); !slices.Equal(got, bare(c.confirmed)) {
			t.Errorf("%s: with a remark it confirms %+v: %s", name, got, more)
		}
	}
}

// bare leaves the notes out, which are not read.
func bare(confirmed []Confirmation) []Confirmation {
	var out []Confirmation
	for _, c := range confirmed {
		c.Note = ""
		out = append(out, c)
	}
	return out
}

func TestMessagesOfOthersConfirmNothing(t *testing.T) {
	for _, message := range []string{"", "; ", "192.0.2.010 x", "fe80::1%eth0 from pool \"a\"", "::ffff:192.0.2.1 from pool \"a\"",
		"192.0.2.1/32 x", "no 192.0.2.1", " 192.0.2.1"} {
		if got := Confirmed(message); len(got) != 0 {
			t.Errorf("%q confirms %+v", message, got)
		}
	}
}

func FuzzVerdict(f *testing.F) {
	f.Add("public", "kept though; 192.0.2.66 is", "192.0.2.67; 192.0.2.68 from pool \"x\"")
	f.Add("", ";", "; ; 2001:db8::1")
	f.Add("a", "; ;  192.0.2.1", ";; 192.0.2.1, x")
	given := netip.MustParseAddr("192.0.2.10")
	f.Fuzz(func(t *testing.T, pool, note, text string) {
		if strings.ContainsFunc(pool, func(r rune) bool { return (r < 'a' || 'z' < r) && r != '-' }) {
			pool = "public" // names are checked when the document is read
		}
		want := []Confirmation{{Address: given, Pool: pool}}
		message := Verdict([]Confirmation{{Address: given, Pool: pool, Note: note}}, text, note)
		for _, m := range []string{message, WithRemark(message, text)} {
			if got := Confirmed(m); !slices.Equal(got, want) {
				t.Errorf("%q confirms %+v", m, got)
			}
		}
	})
}
