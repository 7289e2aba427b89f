package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab/netns"
)

// checkNamespaces refuses to go on when somebody else has a namespace that the
// lab would make, use, and remove in the end.
func (l *Lab) checkNamespaces() error {
	for _, ns := range l.namespaces() {
		if _, err := os.Lstat(filepath.Join(netns.Dir, ns)); err == nil {
			return fmt.Errorf("there is a network namespace %s already, and it is of no lab: choose another name, or remove it by `ip netns delete %s`", ns, ns)
		}
	}
	return nil
}

// buildNetwork makes the switch and plugs every host into it.
func (l *Lab) buildNetwork(ctx context.Context) error {
	var namespaces []string
	for _, ns := range l.namespaces() {
		namespaces = append(namespaces, "netns add "+ns)
	}
	if err := ip(ctx, "", namespaces); err != nil {
		return err
	}
	if err := ip(ctx, l.switchNamespace(), l.switchCommands()); err != nil {
		return err
	}
	if err := nft(ctx, l.switchNamespace(), l.switchFirewall()); err != nil {
		return err
	}
	for _, h := range l.hosts {
		if err := l.configure(ctx, h); err != nil {
			return fmt.Errorf("configure %s: %w", h.Name, err)
		}
	}
	return nil
}

func (l *Lab) switchCommands() []string {
	commands := []string{
		"link add lan type bridge", "link set lan up",
		"link add lan2 type bridge", "link set lan2 up", // for Split
	}
	for _, h := range l.hosts {
		commands = append(commands,
			fmt.Sprintf("link add %s type veth peer name eth0 address %s netns %s", h.port(), h.MAC, h.Namespace),
			fmt.Sprintf("link set %s master lan up", h.port()))
	}
	return commands
}

// configure gives a host what the network configuration of a machine gives it.
func (l *Lab) configure(ctx context.Context, h Host) error {
	if err := netns.Do(h.Namespace, setSysctls); err != nil {
		return err
	}
	if err := ip(ctx, h.Namespace, l.hostCommands(h)); err != nil {
		return err
	}
	return l.nft(ctx, h.Name, emptyFirewall)
}

func setSysctls() error {
	for _, setting := range []struct{ key, value string }{
		{"ipv4/ip_forward", "1"},
		{"ipv6/conf/all/forwarding", "1"},
		{"ipv6/conf/eth0/accept_dad", "0"}, // addresses are usable at once
		{"ipv6/conf/default/accept_dad", "0"},
	} {
		path := filepath.Join("/proc/sys/net", setting.key)
		if err := os.WriteFile(path, []byte(setting.value), 0); err != nil {
			return fmt.Errorf("set %s to %s: %w", path, setting.value, err)
		}
	}
	return nil
}

func (l *Lab) hostCommands(h Host) []string {
	commands := []string{
		"link set lo up",
		"link set eth0 up",
		fmt.Sprintf("address add %s/%d dev eth0", h.IPv4, LANv4.Bits()),
		fmt.Sprintf("address add %s/%d dev eth0 nodad", h.IPv6, LANv6.Bits()),
	}
	if h.Name != Router {
		commands = append(commands,
			fmt.Sprintf("route add default via %s", l.router().IPv4),
			fmt.Sprintf("route add default via %s", l.router().IPv6))
	}
	if !h.IsNode() {
		return commands
	}
	for _, peer := range l.Nodes() {
		if peer.Name == h.Name {
			continue
		}
		commands = append(commands,
			fmt.Sprintf("route add %s via %s", peer.PodsV4, peer.IPv4),
			fmt.Sprintf("route add %s via %s", peer.PodsV6, peer.IPv6))
	}
	return commands
}

// removeNetwork removes the namespaces, and with them all that is in them.
func (l *Lab) removeNetwork() error {
	var errs []error
	for _, ns := range l.namespaces() {
		if _, err := os.Lstat(filepath.Join(netns.Dir, ns)); errors.Is(err, os.ErrNotExist) {
			continue
		}
		errs = append(errs, ip(context.Background(), "", []string{"netns delete " + ns}))
	}
	return errors.Join(errs...)
}

func (l *Lab) switchNamespace() string { return l.namespace("sw") }

func (l *Lab) namespaces() []string {
	all := []string{l.switchNamespace()}
	for _, h := range l.hosts {
		all = append(all, h.Namespace)
	}
	return all
}

// ip gives iproute2 a batch of commands, to run inside a namespace unless that
// is empty. It stops at the first that goes wrong.
func ip(ctx context.Context, namespace string, commands []string) error {
	args := []string{"-batch", "-"}
	if namespace != "" {
		args = append([]string{"-n", namespace}, args...)
	}
	cmd := exec.CommandContext(ctx, "ip", args...)
	cmd.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}
