package source

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// HostLink is how this node has set up a link that may carry announcements.
type HostLink struct {
	Name        string
	MTU         int
	ReversePath int // the greater of all's and its own: 0 off, 1 strict, 2 loose; -1: not known
}

// sysctls is where the kernel shows its settings for IPv4.
const sysctls = "/proc/sys/net/ipv4/conf"

// Host returns the links by name; none while they are not known.
func (w *World) Host() []HostLink {
	from, err := w.o.Links.current()
	if err != nil {
		return nil
	}
	c, configErr := w.Config()
	var out []HostLink
	for _, l := range from.links {
		if configErr == nil && plan.MayUse(c, l.Name) {
			out = append(out, HostLink{l.Name, l.mtu, reversePath(sysctls, l.Name)})
		}
	}
	return out
}

// reversePath returns what counts for a link. The kernel takes the greater.
func reversePath(dir, link string) int {
	all, err := readNumber(fmt.Sprintf("%s/all/rp_filter", dir))
	if err != nil {
		return -1
	}
	own, err := readNumber(fmt.Sprintf("%s/%s/rp_filter", dir, link))
	if err != nil {
		return -1
	}
	return max(all, own)
}

func readNumber(path string) (int, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}
