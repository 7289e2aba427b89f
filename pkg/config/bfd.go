package config

import (
	"fmt"
	"math"
	"regexp"
	"strings"
	"time"
)

// profileDoc is a BFDProfile without the fields that have to be worked out.
type profileDoc struct {
	BFDProfile
	name placed[string]
}

// defaultProfile has the times of the standard's usual implementations: a peer
// is dead after 0.9 s.
func defaultProfile() profileDoc {
	return profileDoc{BFDProfile: BFDProfile{
		ReceiveInterval: 300 * time.Millisecond, TransmitInterval: 300 * time.Millisecond, DetectMultiplier: 3,
		EchoInterval: 50 * time.Millisecond, MinimumTTL: 254,
	}}
}

var profileShape = object(
	"a mapping", "{name: fast, receiveInterval: 100ms, transmitInterval: 100ms}", defaultProfile,
	field("name", withPlace(name("fast")), func(p *profileDoc) *placed[string] { return &p.name },
		"The name by which peers choose the profile. One may go without: it is called `default`."),
	field("receiveInterval", wholeMilliseconds("300ms"), func(p *profileDoc) *time.Duration { return &p.ReceiveInterval },
		"How often the router may send."),
	field("transmitInterval", wholeMilliseconds("300ms"), func(p *profileDoc) *time.Duration { return &p.TransmitInterval },
		"How often we want to send."),
	field("detectMultiplier", integer(2, math.MaxUint8, "3"), func(p *profileDoc) *int { return &p.DetectMultiplier },
		"How many packets have to be missing for the other side to be dead: it is noticed after so many intervals."),
	field("echoMode", boolean(), func(p *profileDoc) *bool { return &p.EchoMode },
		"Also send packets that the router returns by its forwarding plane. Only for IPv4 routers on the same link."),
	field("echoInterval", wholeMilliseconds("50ms"), func(p *profileDoc) *time.Duration { return &p.EchoInterval },
		"How often such packets may come and go."),
	field("passiveMode", boolean(), func(p *profileDoc) *bool { return &p.PassiveMode },
		"Wait for packets of the router before sending any."),
	field("minimumTTL", integer(1, 254, "254"), func(p *profileDoc) *int { return &p.MinimumTTL },
		"Packets of a router that is more than a hop away are dropped if their TTL is less: 254 is two hops."),
)

// wholeMilliseconds is an interval of BFD.
func wholeMilliseconds(example string) shape[time.Duration] {
	return inWhole(duration(10*time.Millisecond, time.Minute, example), time.Millisecond,
		"%s has a part of a millisecond: the speakers of BFD count whole ones")
}

var interfaceSyntax = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)

// interfaceFault says what is wrong with the name of a single link, to follow
// it in a message. Blanks and signs are refused because the name becomes part
// of other programs' configurations.
func interfaceFault(name string) string {
	switch {
	case !interfaceSyntax.MatchString(name) || strings.Trim(name, ".") == "":
		return "is no interface name: letters, digits, ., - and _ are allowed"
	case len(name) > longestInterface:
		return fmt.Sprintf("is too long for an interface name: Linux has %d characters at most", longestInterface)
	}
	return ""
}

func interfaceName(example string) shape[string] {
	return text("an interface name", example, interfaceFault, map[string]any{"pattern": interfaceSyntax.String(), "maxLength": longestInterface})
}

// profiles returns the BFD profiles by name.
func (d *decoder) profiles(docs []placed[profileDoc]) map[string]*BFDProfile {
	var entities []entity
	for _, p := range docs {
		entities = append(entities, entity{p.place, p.value.name})
	}
	out := map[string]*BFDProfile{}
	for i, name := range d.names("BFD profile", entities) {
		p := docs[i].value.BFDProfile
		p.Name = name
		if name != "" { // else it has been refused
			out[name] = &p
		}
	}
	return out
}

// bfd fills in the BFD profile of a peer, and checks that the two go together.
func (d *decoder) bfd(v peerDoc, p *Peer, profiles map[string]*BFDProfile) {
	if v.profile.path == "" {
		return
	}
	p.BFD = profiles[v.profile.value]
	switch {
	case p.BFD == nil && len(profiles) == 0:
		d.fail(v.profile.place, "there is no BFD profile %s: list it in bgp.bfdProfiles", quote(v.profile.value))
	case p.BFD == nil:
		d.fail(v.profile.place, "there is no BFD profile %s; the profiles are %s", quote(v.profile.value), sortedNames(profiles))
	case p.BFD.EchoMode && (p.Interface != "" || p.Address.Is6()):
		d.fail(v.profile.place, "BFD profile %s has echoMode, which is for IPv4 routers only", quote(p.BFD.Name))
	case p.BFD.EchoMode && p.Multihop > 1:
		d.fail(v.profile.place, "BFD profile %s has echoMode, which is for routers on the same link (RFC 5883, section 4.3)", quote(p.BFD.Name))
	}
}
