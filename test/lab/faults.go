package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab/netns"
)

// Cut pulls the plugs of hosts out of the switch, all at once: they hear and
// reach nobody, and see that their link has no carrier.
func (l *Lab) Cut(ctx context.Context, hosts ...string) error {
	return l.onSwitch(ctx, hosts, "link set %s down")
}

// CutSilently does the same to a link that goes through another switch: the
// hosts hear and reach nobody, but their link stays up.
func (l *Lab) CutSilently(ctx context.Context, hosts ...string) error {
	return l.onSwitch(ctx, hosts, "link set %s nomaster")
}

// Split moves hosts to a second switch that has no connection to the first: on
// both sides everything works, and neither hears anything of the other.
func (l *Lab) Split(ctx context.Context, hosts ...string) error {
	return l.onSwitch(ctx, hosts, "link set %s master lan2")
}

// Heal undoes every cut of hosts, whichever function made it.
func (l *Lab) Heal(ctx context.Context, hosts ...string) error {
	if err := l.onSwitch(ctx, hosts, "link set %s master lan up"); err != nil {
		return err
	}
	if err := l.onPorts(ctx, hosts, "flush chain bridge ccm_lab %[1]s"); err != nil {
		return err
	}
	for _, host := range hosts {
		if err := l.nft(ctx, host, openFirewall); err != nil {
			return fmt.Errorf("heal %s: %w", host, err)
		}
	}
	return nil
}

// onSwitch runs an `ip` command for the port of each host.
func (l *Lab) onSwitch(ctx context.Context, hosts []string, command string) error {
	var commands []string
	for _, name := range hosts {
		h, err := l.Host(name)
		if err != nil {
			return err
		}
		commands = append(commands, fmt.Sprintf(command, h.port()))
	}
	return ip(ctx, l.switchNamespace(), commands)
}

// CutAPI drops every packet between the hosts and the control plane, so that
// neither an answer nor a refusal arrives. The rest of the LAN is untouched.
func (l *Lab) CutAPI(ctx context.Context, hosts ...string) error {
	for _, host := range hosts {
		if err := l.block(ctx, host, l.controlPlane()); err != nil {
			return err
		}
	}
	return nil
}

// CutPeers drops every IP packet between the nodes named and each other node,
// those of their pods included. ARP, the API server, the client and the router
// are untouched.
func (l *Lab) CutPeers(ctx context.Context, nodes ...string) error {
	for _, node := range nodes {
		others := slices.DeleteFunc(l.Nodes(), func(h Host) bool { return h.Name == node })
		if err := l.block(ctx, node, others...); err != nil {
			return err
		}
	}
	return nil
}

// Partition drops every IP packet between the nodes named and the remaining
// ones. Within each of the two groups nothing changes.
func (l *Lab) Partition(ctx context.Context, nodes ...string) error {
	others := slices.DeleteFunc(l.Nodes(), func(h Host) bool { return slices.Contains(nodes, h.Name) })
	for _, node := range nodes {
		if err := l.block(ctx, node, others...); err != nil {
			return err
		}
	}
	return nil
}

// CutPort drops every TCP and UDP packet to or from a port, between the hosts
// and everybody else, from one moment on. The switch does it: who sends such a
// packet is told nothing.
func (l *Lab) CutPort(ctx context.Context, port uint16, hosts ...string) error {
	rule := fmt.Sprintf(`add rule bridge ccm_lab %%[1]s meta l4proto { tcp, udp } th sport %[1]d drop
add rule bridge ccm_lab %%[1]s meta l4proto { tcp, udp } th dport %[1]d drop`, port)
	return l.onPorts(ctx, hosts, rule)
}

// onPorts applies an nft script for the port of each host to the switch, all of
// them as one transaction.
func (l *Lab) onPorts(ctx context.Context, hosts []string, script string) error {
	var all []string
	for _, name := range hosts {
		h, err := l.Host(name)
		if err != nil {
			return err
		}
		all = append(all, fmt.Sprintf(script, h.port()))
	}
	return nft(ctx, l.switchNamespace(), strings.Join(all, "\n"))
}

// switchFirewall is in the switch from the start: a chain for each port, which
// sees what comes from that port and what goes to it, and lets all of it pass.
func (l *Lab) switchFirewall() string {
	chains, jumps := "", ""
	for _, h := range l.hosts {
		chains += fmt.Sprintf("chain %s { }\n", h.port())
		jumps += fmt.Sprintf("iifname %[1]q jump %[1]s\noifname %[1]q jump %[1]s\n", h.port())
	}
	return "table bridge ccm_lab {\n" + chains + "chain forward { type filter hook forward priority filter;\n" + jumps + "}\n}"
}

func (l *Lab) block(ctx context.Context, host string, peers ...Host) error {
	if len(peers) == 0 {
		return nil
	}
	var v4, v6 []string
	for _, p := range peers {
		v4, v6 = append(v4, p.IPv4.String()), append(v6, p.IPv6.String())
		if p.IsNode() {
			v4, v6 = append(v4, p.PodsV4.String()), append(v6, p.PodsV6.String())
		}
	}
	return l.nft(ctx, host, fmt.Sprintf("add element inet ccm_lab blocked4 { %s }\nadd element inet ccm_lab blocked6 { %s }",
		strings.Join(v4, ", "), strings.Join(v6, ", ")))
}

// emptyFirewall is in every host from the start, beside kube-proxy's tables.
// What is cut is in its sets, so the kernel is the only one who must remember
// it. Its chains see packets behind kube-proxy's address translation.
const emptyFirewall = `
table inet ccm_lab {
	set blocked4 { type ipv4_addr; flags interval; auto-merge; }
	set blocked6 { type ipv6_addr; flags interval; auto-merge; }
	chain blocked {
		ip saddr @blocked4 drop
		ip daddr @blocked4 drop
		ip6 saddr @blocked6 drop
		ip6 daddr @blocked6 drop
	}
	chain input { type filter hook input priority filter; jump blocked; }
	chain forward { type filter hook forward priority filter; jump blocked; }
	chain output { type filter hook output priority filter; jump blocked; }
}`

const openFirewall = `
flush set inet ccm_lab blocked4
flush set inet ccm_lab blocked6`

// nft applies a script inside a host, as one transaction.
func (l *Lab) nft(ctx context.Context, host, script string) error {
	return nft(ctx, l.namespace(host), script)
}

// nft applies a script inside a namespace, as one transaction.
func nft(ctx context.Context, namespace, script string) error {
	cmd := inNamespace(ctx, namespace, []string{"nft", "-f", "-"})
	cmd.Stdin = strings.NewReader(script)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("nft in %s: %w: %s", namespace, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// KillNode is a power failure: the node is off the switch, and nothing runs on
// it any more.
func (l *Lab) KillNode(ctx context.Context, node string) error {
	if err := l.Cut(ctx, node); err != nil {
		return err
	}
	return l.killAll(l.namespace(node))
}

// ReviveNode turns the power on again: the node is healed, and what the lab
// itself ran on it (kube-proxy, heartbeat, pods) runs again. What the caller
// had started is the caller's to start.
func (l *Lab) ReviveNode(ctx context.Context, node string) error {
	if err := l.Heal(ctx, node); err != nil {
		return err
	}
	for _, p := range l.Processes() {
		if p.Host != node || !p.Own || p.Running() {
			continue
		}
		if _, err := l.Restart(p); err != nil {
			return err
		}
	}
	return nil
}

// killAll ends every process inside a namespace and waits until they are gone.
// It asks again until there is none, because a process may start another one
// while it is being looked for.
func (l *Lab) killAll(namespace string) error {
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	return poll(ctx, "the end of all processes in "+namespace, func() (bool, error) {
		inside, err := processesIn(namespace)
		if err != nil {
			return false, err
		}
		var errs []error
		for _, p := range inside {
			if err := p.signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
				errs = append(errs, err)
			}
		}
		return len(inside) == 0, errors.Join(errs...)
	})
}

// processesIn lists the living processes in a namespace, without the caller,
// one of whose threads may be visiting. A namespace that is gone has none.
func processesIn(namespace string) ([]processID, error) {
	want, err := netns.Of(namespace)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var inside []processID
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		if in, err := netns.OfProcess(pid); err != nil || in != want {
			continue // also one that has ended meanwhile
		}
		if id, err := identify(pid); err == nil && id.alive() {
			inside = append(inside, id)
		}
	}
	return inside, nil
}
