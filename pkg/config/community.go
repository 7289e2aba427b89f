package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Community is a BGP community: a standard one (RFC 1997) of two parts of 16
// bits each, or a large one (RFC 8092) of three parts of 32 bits each.
type Community struct {
	Large  bool
	Global uint32 // the first part, an ASN by convention
	Local1 uint32
	Local2 uint32 // 0 in a standard one
}

// GracefulShutdown tells routers that a path is about to go (RFC 8326).
var GracefulShutdown = Community{Global: 65535, Local1: 0}

// wellKnown are the communities that IANA has given a name and that a router
// may be sent.
var wellKnown = map[string]Community{
	"accept-own":          {Global: 65535, Local1: 1},
	"blackhole":           {Global: 65535, Local1: 666},
	"graceful-shutdown":   GracefulShutdown,
	"llgr-stale":          {Global: 65535, Local1: 6},
	"no-advertise":        {Global: 65535, Local1: 65282},
	"no-export":           {Global: 65535, Local1: 65281},
	"no-export-subconfed": {Global: 65535, Local1: 65283},
	"no-llgr":             {Global: 65535, Local1: 7},
	"no-peer":             {Global: 65535, Local1: 65284},
}

// String returns the parts with colons between them, as ParseCommunity reads
// them.
func (c Community) String() string {
	if c.Large {
		return fmt.Sprintf("%d:%d:%d", c.Global, c.Local1, c.Local2)
	}
	return fmt.Sprintf("%d:%d", c.Global, c.Local1)
}

// Compare orders standard communities before large ones, and each by its parts.
func (c Community) Compare(other Community) int {
	if c.Large != other.Large {
		if other.Large {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(c.Global, other.Global), cmp.Compare(c.Local1, other.Local1), cmp.Compare(c.Local2, other.Local2))
}

// ParseCommunity reads a community from numbers or a well-known name. The
// error follows the quoted text in a message.
func ParseCommunity(text string) (Community, error) {
	if c, ok := wellKnown[text]; ok {
		return c, nil
	}
	parts := strings.Split(strings.TrimPrefix(text, "large:"), ":")
	large := len(parts) == 3
	if len(parts) < 2 || len(parts) > 3 || !large && strings.HasPrefix(text, "large:") {
		return Community{}, fmt.Errorf("is no community: write 65000:100, 65000:1:2 for a large one, or one of %s",
			strings.Join(slices.Sorted(maps.Keys(wellKnown)), ", "))
	}
	size := 16
	if large {
		size = 32
	}
	var numbers [3]uint32
	for i, part := range parts {
		n, err := communityPart(part, size)
		if err != nil {
			return Community{}, err
		}
		numbers[i] = n
	}
	return Community{Large: large, Global: numbers[0], Local1: numbers[1], Local2: numbers[2]}, nil
}

func communityPart(text string, size int) (uint32, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	switch {
	case err != nil || text != strconv.FormatUint(n, 10):
		return 0, fmt.Errorf("is no community: %s is no number from 0 to %d", quote(text), uint64(1)<<size-1)
	case n >= 1<<size:
		return 0, fmt.Errorf("does not fit: %d is more than the 16 bits of a part of a standard community; a large one has three parts of 32 bits", n)
	}
	return uint32(n), nil
}
