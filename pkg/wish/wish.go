// Package wish reads what a Service asks for: addresses, pools, and the key
// under which it shares an address. It is pure: annotations in, wishes and
// faults out. Who hears a wish says whose words count; our own always do.
package wish

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// Said is a wish, and where it stands.
type Said struct {
	Where   string         // an annotation, or InSpec
	Value   string         // never empty
	Dialect config.Dialect // whose word Where is; empty: ours, or that of Kubernetes
}

// InSpec is the place where Kubernetes itself has room for one address.
const InSpec = "spec.loadBalancerIP"

// Asked is what a Service asks for in one respect.
type Asked[T any] struct {
	Value  T       // what all of Said say; nothing if there are faults
	Said   []Said  // in our own words first, then in the order of the dialects
	Faults []Fault // all there are, in the order of Said
}

// Err returns the first fault, nil if there is none.
func (a Asked[T]) Err() error {
	if len(a.Faults) == 0 {
		return nil
	}
	return a.Faults[0]
}

// Fault is why a wish cannot be understood: by itself, or because another one
// contradicts it.
type Fault struct {
	Said
	other Said   // what it contradicts
	alone string // what is wrong with it by itself; empty: it contradicts other
}

// Error returns a sentence with all places that it is about.
func (f Fault) Error() string {
	if f.alone != "" {
		return f.Where + ": " + f.alone
	}
	return fmt.Sprintf("%s says %q, but %s says %q", f.other.Where, f.other.Value, f.Where, f.Value)
}

// Why returns what to say to somebody who looks at f.Where.
func (f Fault) Why() string {
	if f.alone != "" {
		return f.alone
	}
	return fmt.Sprintf("says %q, and %s says %q", f.Value, f.other.Where, f.other.Value)
}

// Addresses returns the addresses that a Service asks for, at most one of each
// family. Its spec.loadBalancerIP, which has room for one only, may name any of
// those that its annotations ask for.
func Addresses(annotations map[string]string, loadBalancerIP string, dialects []config.Dialect) Asked[[]netip.Addr] {
	all := said(annotations, dialects, func(v vocabulary) []string { return v.addresses })
	spec := Said{Where: InSpec, Value: strings.TrimSpace(loadBalancerIP)}
	if spec.Value != "" && len(all) == 0 {
		return agreed([]Said{spec}, oneAddress, sameAddresses)
	}
	asked := agreed(all, addresses, sameAddresses)
	if spec.Value == "" || len(asked.Faults) > 0 {
		return asked
	}
	if a, err := netip.ParseAddr(spec.Value); err != nil || !slices.Contains(asked.Value, a.Unmap()) {
		asked.Value, asked.Faults = nil, []Fault{{Said: spec, other: all[0]}}
	}
	return asked
}

// Pools returns the names of the pools that a Service may have addresses from.
func Pools(annotations map[string]string, dialects []config.Dialect) Asked[[]string] {
	all := said(annotations, dialects, func(v vocabulary) []string { return v.pools })
	return agreed(all, func(value string) ([]string, []string) { return List(value), nil }, slices.Equal[[]string])
}

// SharingKey returns the key of the Services with which one may share an address.
func SharingKey(annotations map[string]string, dialects []config.Dialect) Asked[string] {
	all := said(annotations, dialects, func(v vocabulary) []string { return v.sharing })
	return agreed(all, func(value string) (string, []string) { return value, nil }, func(a, b string) bool { return a == b })
}

// said collects what a Service says in one respect. An empty value says
// nothing: templates often leave one behind.
func said(annotations map[string]string, dialects []config.Dialect, names func(vocabulary) []string) []Said {
	var out []Said
	for _, d := range slices.Concat([]config.Dialect{ours}, dialects) {
		for _, name := range names(words(d)) {
			if value := strings.TrimSpace(annotations[name]); value != "" {
				out = append(out, Said{name, value, d})
			}
		}
	}
	return out
}

// agreed parses every wish and returns what they all say. Two that differ are
// a fault: to prefer one in silence would surprise whoever wrote the other.
func agreed[T any](all []Said, parse func(string) (T, []string), equal func(a, b T) bool) Asked[T] {
	out := Asked[T]{Said: all}
	var first Said // that was understood
	for _, s := range all {
		value, faults := parse(s.Value)
		switch {
		case len(faults) > 0:
			for _, f := range faults {
				out.Faults = append(out.Faults, Fault{Said: s, alone: f})
			}
		case first.Where == "":
			first, out.Value = s, value
		case !equal(out.Value, value):
			out.Faults = append(out.Faults, Fault{Said: s, other: first})
		}
	}
	if len(out.Faults) > 0 {
		out.Value = *new(T)
	}
	return out
}

// List returns the items of a list with commas, without empty ones.
func List(value string) []string {
	var out []string
	for item := range strings.SplitSeq(value, ",") {
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, item)
		}
	}
	return out
}

// addresses reads a list of addresses, at most one of each family.
func addresses(value string) (out []netip.Addr, faults []string) {
	for _, item := range List(value) {
		a, fault := address(item)
		if fault != "" {
			faults = append(faults, fault)
			continue
		}
		if i := slices.IndexFunc(out, func(other netip.Addr) bool { return other.Is4() == a.Is4() }); i >= 0 {
			faults = append(faults, fmt.Sprintf("%s and %s are of the same family, and a Service has one address of each", out[i], a))
			continue
		}
		out = append(out, a)
	}
	return out, faults
}

// oneAddress reads an address where there is room for one.
func oneAddress(value string) ([]netip.Addr, []string) {
	a, fault := address(value)
	if fault != "" {
		return nil, []string{fault}
	}
	return []netip.Addr{a}, nil
}

// address reads an address that a Service can have, or says why it is none.
func address(text string) (netip.Addr, string) {
	a, err := netip.ParseAddr(text)
	zone := a.Zone()
	a = a.Unmap()
	switch {
	case err != nil:
		return netip.Addr{}, fmt.Sprintf("%q is no address", text)
	case zone != "":
		return netip.Addr{}, fmt.Sprintf("%q has a zone, which the address of a Service cannot have", text)
	case a.IsUnspecified():
		return netip.Addr{}, fmt.Sprintf("%q asks DHCP for an address, which is not supported", text)
	}
	return a, ""
}

func sameAddresses(a, b []netip.Addr) bool {
	return slices.Equal(sorted(a), sorted(b))
}

func sorted(addresses []netip.Addr) []netip.Addr {
	return slices.SortedFunc(slices.Values(addresses), netip.Addr.Compare)
}
