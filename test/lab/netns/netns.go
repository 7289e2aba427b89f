// Package netns runs Go code inside a named network namespace, as
// `ip netns exec` does for programs.
//
// A socket stays for its life in the namespace in which it was made. So code
// that makes its sockets inside Do can use them from anywhere afterwards.
package netns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// Dir is where iproute2 mounts named namespaces.
const Dir = "/run/netns"

// Do calls f on a thread that is inside the namespace called name, and takes
// the thread back out afterwards. What f starts on other goroutines is not in
// the namespace.
func Do(name string, f func() error) error {
	target, err := os.Open(filepath.Join(Dir, name))
	if err != nil {
		return fmt.Errorf("open network namespace %s: %w", name, err)
	}
	defer target.Close()

	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("open the current network namespace: %w", err)
	}
	defer home.Close()

	if err := unix.Setns(int(target.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter network namespace %s: %w", name, err)
	}
	err = f()
	if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back != nil {
		// The thread stays locked, so that the runtime ends it with its
		// goroutine instead of running others in the wrong namespace.
		return errors.Join(err, fmt.Errorf("leave network namespace %s: %w", name, back))
	}
	runtime.UnlockOSThread()
	return err
}

// Dialer returns a dial function, as net.Dialer has it, whose connections
// begin in the namespace called name. Hosts in addresses must be IP addresses:
// a name would be looked up outside, by the resolver's own goroutines.
func Dialer(name string) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		if err := wantIP(address); err != nil {
			return nil, err
		}
		err = Do(name, func() error {
			var d net.Dialer
			conn, err = d.DialContext(ctx, network, address)
			return err
		})
		return conn, err
	}
}

// Listen is net.Listen inside the namespace called name; the host in the
// address must be an IP address.
func Listen(name, network, address string) (listener net.Listener, err error) {
	if err := wantIP(address); err != nil {
		return nil, err
	}
	err = Do(name, func() error {
		listener, err = net.Listen(network, address)
		return err
	})
	return listener, err
}

func wantIP(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	if _, err := netip.ParseAddr(host); err != nil {
		return fmt.Errorf("%q is not an IP address, and names cannot be looked up inside a network namespace", host)
	}
	return nil
}

// ID identifies the network namespace of a process or of a name: two equal
// IDs are the same namespace.
type ID struct{ dev, inode uint64 }

// Of returns the ID of the namespace called name.
func Of(name string) (ID, error) {
	return id(filepath.Join(Dir, name))
}

// OfProcess returns the ID of the namespace in which the main thread of
// process pid is.
func OfProcess(pid int) (ID, error) {
	return id(fmt.Sprintf("/proc/%d/ns/net", pid))
}

func id(path string) (ID, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return ID{}, fmt.Errorf("stat %s: %w", path, err)
	}
	return ID{uint64(st.Dev), st.Ino}, nil
}
