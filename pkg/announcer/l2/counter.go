package l2

import (
	"fmt"
	"os"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// packetCounter counts frames without being woken by any: nobody reads its
// socket, nor waits for it, so the few frames that its buffer holds stay there
// and the kernel counts all that come after as thrown away.
type packetCounter struct{ fd int }

// counter implements sockets.
func (systemSockets) counter(l plan.Link, etherType int, f []bpf.RawInstruction) (counter, error) {
	// Not of the protocol until it is bound, so that it counts nothing before
	// it has its filter.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	c := packetCounter{fd}
	if err := c.prepare(l.Index, etherType, f); err != nil {
		c.close()
		return nil, fmt.Errorf("open counter on %s: %w", l.Name, err)
	}
	return c, nil
}

func (c packetCounter) prepare(index, etherType int, f []bpf.RawInstruction) error {
	filter := make([]unix.SockFilter, len(f))
	for i, ins := range f {
		filter[i] = unix.SockFilter{Code: ins.Op, Jt: ins.Jt, Jf: ins.Jf, K: ins.K}
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.SetsockoptSockFprog(c.fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program); err != nil {
		return os.NewSyscallError("attach filter", err)
	}
	if err := unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 0); err != nil { // the least there is
		return os.NewSyscallError("shrink buffer", err)
	}
	to := unix.SockaddrLinklayer{Ifindex: index, Protocol: uint16(etherType>>8 | etherType<<8&0xff00)}
	return os.NewSyscallError("bind", unix.Bind(c.fd, &to))
}

// count implements counter.
func (c packetCounter) count() uint64 {
	stats, err := unix.GetsockoptTpacketStats(c.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return 0
	}
	return uint64(stats.Packets) // those thrown away included
}

// close implements counter.
func (c packetCounter) close() { _ = unix.Close(c.fd) } // nothing is lost with it
