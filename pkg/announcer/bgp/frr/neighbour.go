package frr

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// neighbour is what FRR knows a peer by.
func neighbour(p config.Peer) string {
	if p.Interface != "" {
		return p.Interface
	}
	return p.Address.WithZone("").String()
}

// neighbour writes a session.
func (b *writer) neighbour(session Peering, routerASN uint32, passwords map[string]string) {
	p := session.Peer
	n := neighbour(p)
	if p.Interface != "" {
		b.line(1, "neighbor %s interface v6only remote-as %s", n, remoteAS(p))
	} else {
		b.line(1, "neighbor %s remote-as %s", n, remoteAS(p))
	}
	if p.LocalASN != routerASN {
		b.line(1, "neighbor %s local-as %d no-prepend replace-as", n, p.LocalASN)
	}
	b.line(1, "neighbor %s description %s", n, p.Name)
	if session.Closed {
		b.line(1, "neighbor %s shutdown", n) // with a Cease, which FRR leaves out when it removes a router
	}
	if p.BFD != nil {
		b.line(1, "neighbor %s bfd", n) // FRR shows both lines
		b.line(1, "neighbor %s bfd profile %s", n, p.BFD.Name)
	}
	b.way(n, p)
	if password := passwords[p.PasswordSecret]; p.PasswordSecret != "" {
		b.line(1, "neighbor %s password %s", n, password)
	}
	if p.GracefulRestart > 0 {
		b.line(1, "neighbor %s graceful-restart", n)
	} else {
		// FRR offers it by itself, and the router would keep the routes of a
		// connection that ends without a word.
		b.line(1, "neighbor %s graceful-restart-disable", n)
	}
	b.line(1, "neighbor %s timers %d %d", n, int(p.KeepaliveTime.Seconds()), int(p.HoldTime.Seconds()))
	b.line(1, "neighbor %s timers connect %d", n, int(p.ConnectTime.Seconds()))
}

// way writes how the connection comes about.
func (b *writer) way(n string, p config.Peer) {
	if zone := p.Address.Zone(); zone != "" {
		b.line(1, "neighbor %s interface %s", n, zone)
	}
	if p.Passive {
		b.line(1, "neighbor %s passive", n)
	}
	if p.Port != 179 {
		b.line(1, "neighbor %s port %d", n, p.Port)
	}
	if p.Multihop > 1 {
		b.line(1, "neighbor %s ebgp-multihop %d", n, p.Multihop)
	}
	if p.TTLSecurity > 0 {
		b.line(1, "neighbor %s ttl-security hops %d", n, p.TTLSecurity)
	}
	if p.SourceAddress.IsValid() {
		b.line(1, "neighbor %s update-source %s", n, p.SourceAddress)
	}
	if p.Address.Is6() && slices.Contains(p.Families, config.IPv4) {
		b.line(1, "neighbor %s capability extended-nexthop", n) // RFC 8950
	}
}

func remoteAS(p config.Peer) string {
	if p.Kind != config.ByNumber {
		return string(p.Kind)
	}
	return fmt.Sprint(p.ASN)
}

// longestPassword is the kernel's.
const longestPassword = 80

// illegible are the characters with which FRR's tools take a password for
// something else, or cannot remove it again.
var illegible = []byte("!#?\"'\\`")

// CheckPassword says what keeps a password from standing in a line of the file.
// No error has it in its text.
func CheckPassword(password string) error {
	switch {
	case password == "":
		return errors.New("the password is empty")
	case len(password) > longestPassword:
		return fmt.Errorf("the password has more than %d bytes", longestPassword)
	case slices.ContainsFunc([]byte(password), func(c byte) bool { return c <= ' ' || c > '~' || slices.Contains(illegible, c) }):
		return errors.New("the password has a character that FRR cannot read: blanks, !, #, ?, quotes, backslashes and what is not ASCII")
	}
	return nil
}
