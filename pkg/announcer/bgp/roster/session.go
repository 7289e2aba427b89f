package roster

import (
	"slices"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// SameSession tells whether the session with a peer goes on if the peer becomes
// another one: whether they differ in nothing that is agreed on, or settled,
// when a session comes up.
func SameSession(a, b config.Peer) bool {
	return slices.Equal(a.Families, b.Families) && a.Address == b.Address && a.Port == b.Port &&
		a.ASN == b.ASN && a.Kind == b.Kind && a.LocalASN == b.LocalASN && a.RouterID == b.RouterID && a.SourceAddress == b.SourceAddress &&
		a.HoldTime == b.HoldTime && a.KeepaliveTime == b.KeepaliveTime && a.GracefulRestart == b.GracefulRestart &&
		a.Multihop == b.Multihop && a.TTLSecurity == b.TTLSecurity && a.PasswordSecret == b.PasswordSecret
}
