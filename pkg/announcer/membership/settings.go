package membership

import (
	"fmt"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// timing is a detection preset.
type timing struct {
	probeInterval, probeTimeout time.Duration
	suspicion                   int           // multiplier
	gossip                      time.Duration // between two rounds of gossip
}

// timingOf returns the times of a preset. Gossip costs nothing while there is
// no news, and has to be quick: beside the time after which a suspicion becomes
// a death, and because an election waits for it.
func timingOf(d config.Detection) (timing, error) {
	const ms = time.Millisecond
	switch d {
	case config.Rapid:
		return timing{100 * ms, 50 * ms, 3, 50 * ms}, nil
	case config.Fast:
		return timing{200 * ms, 100 * ms, 3, 100 * ms}, nil
	case config.LAN:
		return timing{1000 * ms, 500 * ms, 4, 100 * ms}, nil
	case config.WAN:
		return timing{5000 * ms, 3000 * ms, 6, 200 * ms}, nil
	}
	return timing{}, fmt.Errorf("unknown detection %q", string(d))
}

// settings are memberlist's for these options. What is not set here is
// memberlist's default for a LAN.
func settings(o Options) (*memberlist.Config, error) {
	t, err := timingOf(o.Detection)
	if err != nil {
		return nil, err
	}
	c := memberlist.DefaultLANConfig()
	c.Name = o.Name
	c.BindAddr, c.BindPort = o.Address.Unmap().String(), o.Port
	c.AdvertiseAddr, c.AdvertisePort = c.BindAddr, c.BindPort
	c.Label = o.Label

	c.ProbeInterval, c.ProbeTimeout = t.probeInterval, t.probeTimeout
	c.SuspicionMult = t.suspicion
	c.GossipInterval = t.gossip

	// After several deaths at once few are left to confirm a suspicion, and
	// after one failed probe a prober takes itself for unwell: the defaults
	// (6 and 8) then double the time to detection.
	c.SuspicionMaxTimeoutMult = 2
	c.AwarenessMaxMultiplier = 2

	// The full exchange repairs whatever gossip lost, so it sets how long an
	// update can stay lost. 30 s would be too long for an election.
	c.PushPullInterval = 5 * time.Second

	// Within a LAN a connection stands in milliseconds or the host is off.
	c.TCPTimeout = time.Second

	// A Node that comes back with another address would else never be
	// accepted; earlier, a host with a stolen name could push out a living one.
	c.DeadNodeReclaimTime = 5 * time.Second

	// The dead are told what is gossiped about them, which heals short cuts
	// without a join, and are remembered, so that a member that has missed
	// the death cannot bring them back to life.
	c.GossipToTheDeadTime = 30 * time.Second

	// Messages are short, and compressing them is half of the idle CPU.
	c.EnableCompression = false

	// Several hundred members that restart together fill the default of 1,024.
	c.HandoffQueueDepth = 4096
	return c, nil
}
