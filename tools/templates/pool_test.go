package templates

import (
	"net/netip"
	"testing"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// in tells whether an address is in a pool.
func in(t *testing.T, c config.Config, text string) bool {
	t.Helper()
	addr, err := netip.ParseAddr(text)
	if err != nil {
		t.Fatal(err)
	}
	_, found := c.PoolOf(addr)
	return found
}
