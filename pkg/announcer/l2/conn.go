package l2

import (
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"github.com/mdlayher/packet"
	"golang.org/x/net/bpf"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// conn is a packet socket on one link. Its methods may be called at the same time.
type conn interface {
	// reader returns a function that waits for a frame and reads it into b.
	// It is for one goroutine, allocates nothing, and fails after close.
	reader() func(b []byte) (int, error)

	// sender returns a function that sends a frame or fails; it never waits.
	// It is for one goroutine and allocates nothing.
	sender() func(frame []byte) error

	// setFilter replaces the filter. No frame is lost that both let through.
	setFilter(f []bpf.RawInstruction) error

	// join makes the link receive what is sent to an Ethernet group, leave
	// ends that. Memberships end with the conn.
	join(group mac) error
	leave(group mac) error

	// overflow returns how many frames the kernel threw away since the last
	// call because nobody read them in time.
	overflow() uint64

	close() error
}

// sockets opens what a link needs.
type sockets interface {
	// packet opens a conn that reads the frames of etherType that f lets
	// through. It fails with ENETDOWN on a link that is not up.
	packet(l plan.Link, etherType int, f []bpf.RawInstruction) (conn, error)

	// counter opens a counter of frames of etherType that f lets through.
	counter(l plan.Link, etherType int, f []bpf.RawInstruction) (counter, error)

	// reporter opens a reporter.
	reporter(l plan.Link) (reporter, error)
}

// counter counts frames that nobody reads.
type counter interface {
	// count returns how many came since the last call.
	count() uint64

	close()
}

// reporter has the kernel report group memberships to the routers and switches
// of a link (MLD, RFC 3810). They end with it.
type reporter interface {
	// join fails with ENOBUFS or ENOMEM when the reporter has as many groups
	// as the kernel allows.
	join(group netip.Addr) error
	leave(group netip.Addr) error
	close() error
}

// systemSockets are real.
type systemSockets struct{}

// receiveBuffer is asked for, so that a node without a free CPU for a moment
// forgets no request. The kernel grants as much of it as net.core.rmem_max says.
const receiveBuffer = 1 << 20

// packet implements sockets.
func (systemSockets) packet(l plan.Link, etherType int, f []bpf.RawInstruction) (conn, error) {
	c, err := packet.Listen(&net.Interface{Index: l.Index}, packet.Raw, etherType, &packet.Config{Filter: f})
	if err != nil {
		return nil, err
	}
	raw, err := c.SyscallConn()
	if err == nil {
		err = prepare(raw)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return &packetConn{Conn: c, raw: raw}, nil
}

// prepare fails with what went wrong when the socket was bound: that the link
// is down is told nowhere else.
func prepare(raw syscall.RawConn) error {
	var pending int
	var err error
	controlled := raw.Control(func(fd uintptr) {
		if pending, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR); err == nil {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer)
		}
	})
	switch {
	case controlled != nil:
		return controlled
	case err != nil:
		return fmt.Errorf("prepare socket: %w", err)
	case pending != 0:
		return unix.Errno(pending)
	}
	return nil
}

type packetConn struct {
	*packet.Conn
	raw syscall.RawConn
}

// reader implements conn. The closure is made once, so that a read makes none.
func (c *packetConn) reader() func([]byte) (int, error) {
	var (
		buf []byte
		n   int
		err error
	)
	read := func(fd uintptr) bool {
		for {
			if n, err = unix.Read(int(fd), buf); err != unix.EINTR {
				return err != unix.EAGAIN
			}
		}
	}
	return func(b []byte) (int, error) {
		buf = b
		if failed := c.raw.Read(read); failed != nil {
			return 0, failed
		}
		return max(n, 0), err
	}
}

// sender implements conn. A socket whose send buffer is full fails with EAGAIN.
func (c *packetConn) sender() func([]byte) error {
	var (
		frame []byte
		err   error
	)
	write := func(fd uintptr) bool {
		for {
			if _, err = unix.Write(int(fd), frame); err != unix.EINTR {
				return true
			}
		}
	}
	return func(b []byte) error {
		frame = b
		if failed := c.raw.Write(write); failed != nil {
			return failed
		}
		return err
	}
}

func (c *packetConn) setFilter(f []bpf.RawInstruction) error { return c.SetBPF(f) }

func (c *packetConn) join(group mac) error { return c.JoinGroup(group[:]) }

func (c *packetConn) leave(group mac) error { return c.LeaveGroup(group[:]) }

func (c *packetConn) overflow() uint64 {
	stats, err := c.Stats()
	if err != nil {
		return 0
	}
	return uint64(stats.Drops)
}

func (c *packetConn) close() error { return c.Close() }

// reporter implements sockets. The socket is there for its memberships only and
// receives nothing.
func (systemSockets) reporter(l plan.Link) (reporter, error) {
	c, err := net.ListenPacket("ip6:ipv6-icmp", "::")
	if err != nil {
		return nil, err
	}
	p := ipv6.NewPacketConn(c)
	var none ipv6.ICMPFilter
	none.SetAll(true)
	if err := p.SetICMPFilter(&none); err != nil {
		c.Close()
		return nil, err
	}
	return &icmpReporter{p, &net.Interface{Index: l.Index}}, nil
}

type icmpReporter struct {
	conn *ipv6.PacketConn
	link *net.Interface
}

func (r *icmpReporter) join(group netip.Addr) error {
	return r.conn.JoinGroup(r.link, &net.IPAddr{IP: group.AsSlice()})
}

func (r *icmpReporter) leave(group netip.Addr) error {
	return r.conn.LeaveGroup(r.link, &net.IPAddr{IP: group.AsSlice()})
}

func (r *icmpReporter) close() error { return r.conn.Close() }
