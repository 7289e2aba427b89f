package migrate

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// bfdProfile is how soon a session notices a dead router. Its times are written
// with their unit, as the document wants them.
type bfdProfile struct {
	Name             string `yaml:"name"`
	ReceiveInterval  string `yaml:"receiveInterval,omitempty"`
	TransmitInterval string `yaml:"transmitInterval,omitempty"`
	DetectMultiplier uint64 `yaml:"detectMultiplier,omitempty"`
	EchoMode         bool   `yaml:"echoMode,omitempty"`
	EchoInterval     string `yaml:"echoInterval,omitempty"`
	PassiveMode      bool   `yaml:"passiveMode,omitempty"`
	MinimumTTL       uint64 `yaml:"minimumTTL,omitempty"`

	old  string // what it was called
	echo Remark // where it says that it has echo mode
}

// metallbProfile reads a BFD profile of MetalLB. Its keys are those of the
// custom resource, in the spelling of the source.
func (im *importer) metallbProfile(o *object, name string, spelled func(string) string) {
	b := bfdProfile{
		Name: im.profileName(name), old: name, echo: o.at(spelled("echoMode")),
		ReceiveInterval: o.milliseconds(spelled("receiveInterval")), TransmitInterval: o.milliseconds(spelled("transmitInterval")),
		DetectMultiplier: o.number(spelled("detectMultiplier"), 255),
		EchoMode:         o.boolean(spelled("echoMode"), false), EchoInterval: o.milliseconds(spelled("echoInterval")),
		PassiveMode: o.boolean(spelled("passiveMode"), false), MinimumTTL: o.number(spelled("minimumTtl"), 254),
	}
	if b.Name != b.old {
		o.note("", "the BFD profile %q is called %q now", b.old, b.Name)
	}
	im.profiles = append(im.profiles, b)
}

// profileName makes a name that no profile has yet.
func (im *importer) profileName(name string) string {
	taken := map[string]bool{}
	for _, other := range im.profiles {
		taken[other.Name] = true
	}
	return unique(name, taken)
}

var capital = regexp.MustCompile(`[A-Z]`)

// dashed spells a key as MetalLB's ConfigMap did.
func dashed(key string) string {
	return capital.ReplaceAllStringFunc(key, func(c string) string { return "-" + strings.ToLower(c) })
}

// milliseconds reads a time that has no unit in the source.
func (o *object) milliseconds(key string) string {
	n := o.number(key, 60_000)
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%dms", n)
}

// bfd reads which BFD profile a session has.
func (im *importer) bfd(o *object, p *peer, key string) {
	name := o.text(key)
	if name == "" {
		return
	}
	i := slices.IndexFunc(im.profiles, func(b bfdProfile) bool { return b.old == name })
	if i < 0 {
		o.lose(key, "there is no BFD profile %q in what was read: the session goes without BFD, and a router that dies is noticed when the hold time ends", name)
		return
	}
	p.BFDProfile = im.profiles[i].Name
}

// echoes takes echo mode from the sessions that cannot have it, which have none
// in the source either. Where others have the same profile, these get another.
func (im *importer) echoes() {
	for i := range im.profiles {
		b := &im.profiles[i]
		var can bool
		var cannot []*peer
		for j := range im.peers {
			switch p := &im.peers[j]; {
			case !b.EchoMode || p.BFDProfile != b.Name:
			case p.echoes():
				can = true
			default:
				cannot = append(cannot, p)
			}
		}
		if len(cannot) > 0 {
			im.muteEcho(b, cannot, can)
		}
	}
}

// muteEcho takes echo mode from peers that have a profile; shared says that
// others need it as it is.
func (im *importer) muteEcho(b *bfdProfile, peers []*peer, shared bool) {
	var names []string
	for _, p := range peers {
		names = append(names, p.Name)
	}
	r := b.echo
	r.Message = "echo mode has no effect on routers of IPv6 and on those that are not on the link, here as in the source; left out for " + quoted(names)
	im.note(r)
	if !shared {
		b.EchoMode, b.EchoInterval = false, ""
		return
	}
	twin := *b
	twin.Name, twin.EchoMode, twin.EchoInterval = im.profileName(b.Name+"-no-echo"), false, ""
	for _, p := range peers {
		p.BFDProfile = twin.Name
	}
	im.profiles = append(im.profiles, twin)
}

// echoes tells whether BFD's echo mode is possible on a session (RFC 5881,
// section 6): FRR has it for IPv4 routers on the link.
func (p peer) echoes() bool {
	address, err := netip.ParseAddr(p.Address)
	return err == nil && address.Is4() && p.Multihop <= 1
}
