package migrate

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// document is what is written, in the order of its keys.
type document struct {
	APIVersion     string          `yaml:"apiVersion"`
	Kind           string          `yaml:"kind"`
	Services       *services       `yaml:"services,omitempty"`
	Pools          []pool          `yaml:"pools"`
	Advertisements []advertisement `yaml:"advertisements,omitempty"`
	BGP            *bgp            `yaml:"bgp,omitempty"`
}

type services struct {
	Class           string `yaml:"loadBalancerClass"`
	HandleUnclassed bool   `yaml:"handleUnclassed"`
}

type pool struct {
	Name              string   `yaml:"name"`
	Addresses         []string `yaml:"addresses,flow"`
	Exclude           []string `yaml:"exclude,omitempty,flow"`
	Priority          int      `yaml:"priority,omitempty"`
	AutoAssign        *bool    `yaml:"autoAssign,omitempty"`
	State             string   `yaml:"state,omitempty"`
	Order             string   `yaml:"order,omitempty"`
	AvoidBuggyIPs     bool     `yaml:"avoidBuggyIPs,omitempty"`
	Namespaces        []string `yaml:"namespaces,omitempty,flow"`
	NamespaceSelector []string `yaml:"namespaceSelector,omitempty,flow"`
	ServiceSelector   []string `yaml:"serviceSelector,omitempty,flow"`
	EnforceNamespaces bool     `yaml:"enforceNamespaces,omitempty"`

	product config.Dialect    // of whom it comes
	old     string            // what it was called there
	labels  map[string]string // of the object that it comes from
	from    *object
}

type advertisement struct {
	Name            string   `yaml:"name"`
	Pools           []string `yaml:"pools,omitempty,flow"`
	ServiceSelector []string `yaml:"serviceSelector,omitempty,flow"`
	NodeSelector    []string `yaml:"nodeSelector,omitempty,flow"`
	Layer2          *layer2  `yaml:"layer2,omitempty"`
	BGP             *bgpRule `yaml:"bgp,omitempty"`

	product config.Dialect
	every   bool // it is for all pools of the product
}

type layer2 struct {
	Interfaces []string `yaml:"interfaces,omitempty,flow"`
}

type bgpRule struct {
	Peers               []string `yaml:"peers,omitempty,flow"`
	Communities         []string `yaml:"communities,omitempty,flow"`
	LocalPref           uint64   `yaml:"localPref,omitempty"`
	AggregationLength   uint64   `yaml:"aggregationLength,omitempty"`
	AggregationLengthV6 uint64   `yaml:"aggregationLengthV6,omitempty"`
}

type bgp struct {
	Backend     config.Backend `yaml:"backend,omitempty"`
	LocalASN    uint64         `yaml:"localASN,omitempty"`
	BFDProfiles []bfdProfile   `yaml:"bfdProfiles,omitempty"`
	Peers       []peer         `yaml:"peers,omitempty"`
}

type peer struct {
	Name            string   `yaml:"name"`
	Address         string   `yaml:"address,omitempty"`
	Interface       string   `yaml:"interface,omitempty"`
	VRF             string   `yaml:"vrf,omitempty"`
	ASN             any      `yaml:"asn"`
	Port            uint64   `yaml:"port,omitempty"`
	LocalASN        uint64   `yaml:"localASN,omitempty"`
	RouterID        string   `yaml:"routerID,omitempty"`
	SourceAddress   string   `yaml:"sourceAddress,omitempty"`
	HoldTime        string   `yaml:"holdTime,omitempty"`
	KeepaliveTime   string   `yaml:"keepaliveTime,omitempty"`
	ConnectTime     string   `yaml:"connectTime,omitempty"`
	Multihop        uint64   `yaml:"multihop,omitempty"`
	PasswordSecret  string   `yaml:"passwordSecret,omitempty"`
	GracefulRestart string   `yaml:"gracefulRestart,omitempty"`
	BFDProfile      string   `yaml:"bfdProfile,omitempty"`
	Families        []string `yaml:"families,omitempty,flow"`
	NodeSelector    []string `yaml:"nodeSelector,omitempty,flow"`

	old      string // what it was called
	password Remark // where the source names its password; the message is not known yet
	plain    bool   // the password itself stands there
}

// internal tells whether the router is in our own AS.
func (p peer) internal() bool {
	return p.ASN == p.LocalASN || p.ASN == string(config.Internal)
}

// document puts together what has been collected.
func (im *importer) document() ([]byte, error) {
	im.namePools()
	d := document{APIVersion: config.APIVersion, Kind: config.Kind, Pools: im.pools, Advertisements: im.announcing()}
	if im.class != "" {
		d.Services = &services{Class: im.class}
	}
	if len(im.peers)+len(im.profiles) > 0 {
		d.BGP = im.routers()
	}
	var b bytes.Buffer
	out := yaml.NewEncoder(&b)
	out.SetIndent(2)
	if err := out.Encode(d); err != nil {
		return nil, err
	}
	return b.Bytes(), out.Close()
}

// routers returns how BGP is spoken. Our AS number is said once, and again only
// by sessions with another one: with an FRR it is the number of the router, which
// must not depend on which sessions there are.
func (im *importer) routers() *bgp {
	b := &bgp{Backend: im.backend, BFDProfiles: im.profiles, Peers: slices.Clone(im.peers)}
	count := map[uint64]int{}
	for _, p := range im.peers {
		count[p.LocalASN]++
		if count[p.LocalASN] > count[b.LocalASN] {
			b.LocalASN = p.LocalASN
		}
	}
	for i := range b.Peers {
		if b.Peers[i].LocalASN == b.LocalASN {
			b.Peers[i].LocalASN = 0
		}
	}
	return b
}

// nowhere selects no Node: there is no label that is there and missing.
const nowhere = "kubernetes.io/hostname,!kubernetes.io/hostname"

// announcing returns the advertisements. One that was for all pools of its
// product is for all pools if there is no other product.
func (im *importer) announcing() []advertisement {
	products := map[config.Dialect]bool{}
	for _, p := range im.pools {
		products[p.product] = true
	}
	var out []advertisement
	covered := map[string]bool{}
	taken := map[string]bool{}
	for _, a := range im.adverts {
		names := a.Pools
		if a.every {
			names = im.poolsOf(a.product)
			if len(products) > 1 {
				a.Pools = names
			}
		}
		if len(names) == 0 {
			continue
		}
		for _, name := range names {
			covered[name] = true
		}
		a.Name = unique(a.Name, taken)
		out = append(out, a)
	}
	for _, p := range im.pools {
		if !covered[p.Name] {
			p.from.note("", "pool %s is not announced in the source: no advertisement that was read selects it. That is kept: its addresses are given out and nobody answers for them", p.Name)
		}
	}
	if len(out) == 0 {
		out = append(out, advertisement{Name: "nobody", NodeSelector: []string{nowhere}, Layer2: &layer2{}})
		im.note(Remark{Message: "nothing in the sources announces anything. That is kept by an advertisement that selects no Node; remove it to announce every pool by layer 2 from all nodes"})
	}
	return out
}

// poolsOf returns the names of a product's pools.
func (im *importer) poolsOf(product config.Dialect) []string {
	var out []string
	for _, p := range im.pools {
		if p.product == product {
			out = append(out, p.Name)
		}
	}
	slices.Sort(out)
	return out
}

// addPool takes in a pool, under a name that may be one of ours.
func (im *importer) addPool(p pool) {
	p.Name = p.old
	im.pools = append(im.pools, p)
}

// namePools gives pools the names that they will have, and advertisements
// these. A name that may stay stays, whatever else would become the same. It
// sorts by priority, so that the document reads in the order of trying; pools of
// equal priority keep the order that they have.
func (im *importer) namePools() {
	slices.SortStableFunc(im.pools, func(a, b pool) int { return cmp.Compare(b.Priority, a.Priority) })
	taken := map[string]bool{}
	stays := make([]bool, len(im.pools))
	for i, p := range im.pools {
		if stays[i] = !taken[p.old] && unique(p.old, map[string]bool{}) == p.old; stays[i] {
			taken[p.old] = true
		}
	}
	renamed := map[string]string{}
	for i := range im.pools {
		p := &im.pools[i]
		if p.Name = p.old; !stays[i] {
			p.Name = unique(p.old, taken)
			p.from.note("", "the pool %q is called %q now, as names of pools are made of lower-case letters, digits, - and . and there is one of each: Services that ask for it by name need the new one", p.old, p.Name)
		}
		renamed[string(p.product)+"/"+p.old] = p.Name
	}
	for i := range im.adverts {
		a := &im.adverts[i]
		for j, name := range a.Pools {
			a.Pools[j] = renamed[string(a.product)+"/"+name]
		}
		slices.Sort(a.Pools)
		a.Pools = slices.Compact(a.Pools)
	}
}

// unique makes a name one by the rules, and one that is not taken yet: upper
// case becomes lower, anything not allowed a dash, and one that is taken gets a
// number.
func unique(name string, taken map[string]bool) string {
	base := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '.':
			return r
		}
		return '-'
	}, strings.ToLower(name))
	base = strings.Trim(base[:min(len(base), 200)], "-.")
	for strings.Contains(base, "..") || strings.Contains(base, ".-") || strings.Contains(base, "-.") {
		base = strings.NewReplacer("..", ".", ".-", "-", "-.", "-").Replace(base)
	}
	if base == "" {
		base = "unnamed"
	}
	out := base
	for n := 2; taken[out]; n++ {
		out = fmt.Sprintf("%s-%d", base, n)
	}
	taken[out] = true
	return out
}
