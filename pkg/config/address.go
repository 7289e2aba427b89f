package config

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"go4.org/netipx"
)

// item is one entry of a list of addresses, with its place and as it was
// written.
type item struct {
	place
	text string
	span netipx.IPRange
}

// itemList is a list of addresses. It is broken if an entry could not be read;
// then there is no telling what is in it and what is not.
type itemList struct {
	items  []item
	broken bool
}

const acceptedForms = "accepted are addresses, CIDRs and ranges of IPv4 or IPv6, " +
	"such as 192.0.2.10, 192.0.2.0/28 or 192.0.2.10-192.0.2.20"

// addresses is a list of addresses, CIDRs and ranges. An entry with commas is
// as many entries.
func addresses(example string, rules listRules) shape[itemList] {
	entries := list("a list of addresses, CIDRs or ranges", example, entry(), rules)
	return shape[itemList]{spec: entries.spec, read: func(d *decoder, n node) (itemList, bool) {
		before := len(d.list)
		read, ok := entries.from(d, n)
		var out itemList
		for _, items := range read {
			out.items = append(out.items, items...)
		}
		out.broken = len(d.list) > before
		return out, ok || out.broken
	}}
}

// entry is one string of a list of addresses.
func entry() shape[[]item] {
	s := spec{
		what: "an address, a CIDR or a range", example: "192.0.2.10-192.0.2.20",
		schema: map[string]any{"type": "string", "pattern": `^[0-9A-Fa-f.:/,\s-]+$`},
	}
	return shape[[]item]{spec: s, read: func(d *decoder, n node) ([]item, bool) {
		if !n.isText() {
			d.mismatch(n, s.unquotedIPv6(n))
			return nil, false
		}
		var out []item
		for text := range strings.SplitSeq(n.Value, ",") {
			text = strings.TrimSpace(text)
			span, err := parseItem(text)
			if err != nil {
				d.fail(n.place(), "%s: %v; %s", quote(text), err, acceptedForms)
				continue
			}
			out = append(out, item{place: n.place(), text: text, span: span})
		}
		return out, true
	}}
}

// unquotedIPv6 makes the example of s what was meant by an address that ends
// in a colon: without quotes it is a key for YAML.
func (s spec) unquotedIPv6(n node) spec {
	if n.Kind == yaml.MappingNode && len(n.Content) == 2 && (node{Node: n.Content[1]}).isNull() {
		if _, err := netip.ParseAddr(n.Content[0].Value + ":"); err == nil {
			s.example = strconv.Quote(n.Content[0].Value + ":")
		}
	}
	return s
}

// parseItem reads an address, a CIDR or a range. The error says why it is
// none, or none that could be given out, without quoting it.
func parseItem(text string) (netipx.IPRange, error) {
	if err := legible(text); err != nil {
		return netipx.IPRange{}, err
	}
	var span netipx.IPRange
	var err error
	switch {
	case strings.Contains(text, "/"):
		span, err = parseCIDR(text)
	case strings.Contains(text, "-"):
		span, err = parseRange(text)
	default:
		var addr netip.Addr
		addr, err = parseAddr(text)
		span = netipx.IPRangeFrom(addr, addr)
	}
	if err != nil {
		return netipx.IPRange{}, err
	}
	return span, ordinary(span)
}

// legible finds what is not meant to be an address, or looks like one only to
// people.
func legible(text string) error {
	switch {
	case text == "":
		return errors.New("there is nothing there")
	case strings.ContainsAny(text, "${}<>"):
		return errors.New("this is the mark of a template that was not filled in")
	case strings.ContainsAny(text, "‐‑‒–—―−"):
		return errors.New("the dash is not the plain one")
	case strings.Count(text, ".") == 7 && !strings.Contains(text, "-"):
		parts := strings.Split(text, ".")
		first, last := strings.Join(parts[:4], "."), strings.Join(parts[4:], ".")
		return fmt.Errorf("two addresses without a dash between them: %s-%s", first, last)
	case len(strings.Fields(text)) > 1 && !strings.ContainsAny(text, "-/"):
		return errors.New("a blank inside: each address is an entry of its own")
	}
	return nil
}

func parseRange(text string) (netipx.IPRange, error) {
	left, right, _ := strings.Cut(text, "-")
	left, right = strings.TrimSpace(left), strings.TrimSpace(right)
	first, err := parseAddr(left)
	if err != nil {
		return netipx.IPRange{}, err
	}
	last, err := parseAddr(right)
	switch {
	case err != nil && !strings.ContainsAny(right, ".:-") && right != "":
		return netipx.IPRange{}, errors.New("the last address is not whole" + wholeLast(left, right))
	case err != nil:
		return netipx.IPRange{}, err
	case first.BitLen() != last.BitLen():
		return netipx.IPRange{}, errors.New("one end is IPv4, the other IPv6")
	case last.Less(first):
		return netipx.IPRange{}, fmt.Errorf("reversed, the first address is above the last: write %s-%s", last, first)
	}
	return netipx.IPRangeFrom(first, last), nil
}

// wholeLast completes the short form of a range, to follow a complaint about
// it.
func wholeLast(first, last string) string {
	cut := strings.LastIndexAny(first, ".:") + 1
	whole, err := netip.ParseAddr(first[:cut] + last)
	if err != nil {
		return ""
	}
	return fmt.Sprintf(": write %s-%s", first, whole)
}

func parseCIDR(text string) (netipx.IPRange, error) {
	left, right, _ := strings.Cut(text, "/")
	if strings.Contains(left, "-") || strings.Contains(right, "-") && !strings.HasPrefix(right, "-") {
		return netipx.IPRange{}, errors.New("a range goes from address to address, without prefix lengths")
	}
	addr, err := parseAddr(left)
	if err != nil {
		return netipx.IPRange{}, err
	}
	bits, err := strconv.Atoi(right)
	if err != nil || bits < 0 || bits > addr.BitLen() || !decimal.MatchString(right) {
		return netipx.IPRange{}, fmt.Errorf("%s is no prefix length from 0 to %d", quote(right), addr.BitLen())
	}
	prefix := netip.PrefixFrom(addr, bits)
	whole := netipx.RangeOfPrefix(prefix.Masked())
	if prefix.Masked().Addr() != addr {
		return netipx.IPRange{}, fmt.Errorf("host bits are set: for %s write %s", show(whole), prefix.Masked())
	}
	return whole, nil
}

func parseAddr(text string) (netip.Addr, error) {
	for part := range strings.SplitSeq(text, ".") {
		if len(part) > 1 && part[0] == '0' && !strings.Contains(text, ":") {
			return netip.Addr{}, fmt.Errorf("leading zero in %s, which some programs read as octal", quote(part))
		}
	}
	addr, err := netip.ParseAddr(text)
	switch {
	case err != nil:
		return netip.Addr{}, fmt.Errorf("%s is no address%s", quote(text), reasonOf(err))
	case addr.Zone() != "":
		return netip.Addr{}, fmt.Errorf("%s has a zone: an address to be given out is valid on every node", addr)
	case addr.Is4In6():
		return netip.Addr{}, fmt.Errorf("%s is an IPv4-mapped address: write %s", text, addr.Unmap())
	}
	return addr, nil
}

// reasonOf takes from netip's error what it adds to our own words.
func reasonOf(err error) string {
	_, reason, found := strings.Cut(err.Error(), "): ")
	if !found || strings.Contains(reason, "unable to parse IP") {
		return ""
	}
	return ": " + reason
}

// show writes a range as the user would.
func show(r netipx.IPRange) string {
	if r.From() == r.To() {
		return r.From().String()
	}
	return r.String()
}

// CheckAddress says why a text is no address, CIDR or range that a pool may
// have; nil if it is one. The error does not quote the text.
func CheckAddress(text string) error {
	_, err := parseItem(text)
	return err
}
