package election

import (
	"crypto/sha256"
	"net/netip"
	"strings"
	"testing"
)

// A ballot takes the sum out of a hash in its own way: it is the sum of
// SHA-256 all the same, whatever the length of the text.
func TestBallotSumsLikeSHA256(t *testing.T) {
	for _, a := range []string{"0.0.0.0", "192.0.2.10", "2001:db8:51::40", "2001:db8:1111:2222:3333:4444:5555:6666"} {
		address := netip.MustParseAddr(a)
		b := newBallot(address)
		for length := range 254 { // no Node has a longer name
			for _, letter := range []string{"n", "m"} { // two names of each length
				node := strings.Repeat(letter, length)
				b.add(node)
				if want := sha256.Sum256([]byte(node + "#" + a)); [sha256.Size]byte(b.sum) != want {
					t.Fatalf("a name of %d letters and %s: %x, want %x", length, a, b.sum, want)
				}
			}
		}
	}
}
