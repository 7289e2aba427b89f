package observe

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// receiveBuffer holds some thousand frames while the reader gets no CPU.
const receiveBuffer = 8 << 20

// A socket sends and receives whole frames of one Ethernet type on one link.
type socket struct {
	file *os.File
	raw  syscall.RawConn
	to   unix.SockaddrLinklayer
}

// openSocket opens a socket in the network namespace of the calling thread.
func openSocket(link *net.Interface, etherType uint16) (*socket, error) {
	protocol := etherType<<8 | etherType>>8
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, int(protocol))
	if err != nil {
		return nil, fmt.Errorf("open a packet socket: %w", err)
	}
	to := unix.SockaddrLinklayer{Protocol: protocol, Ifindex: link.Index}
	if err := errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1),
		unix.Bind(fd, &to),
	); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("set up a packet socket on %s: %w", link.Name, err)
	}
	file := os.NewFile(uintptr(fd), "packet socket on "+link.Name)
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &socket{file: file, raw: raw, to: to}, nil
}

// Widen lets the socket of a connection hold some thousand datagrams, beyond
// the limit of the machine, while its reader gets no CPU. It takes
// CAP_NET_ADMIN.
func Widen(c syscall.Conn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return fmt.Errorf("widen a socket: %w", err)
	}
	var set error
	err = raw.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer)
	})
	if err = errors.Join(err, set); err != nil {
		return fmt.Errorf("widen a socket: %w", err)
	}
	return nil
}

// send does not wait: a frame for which there is no room is an error.
func (s *socket) send(frame []byte) error {
	var sent error
	err := s.raw.Control(func(fd uintptr) { sent = unix.Sendto(int(fd), frame, 0, &s.to) })
	return errors.Join(err, sent)
}

// receive waits for a frame and returns how long it is and when the kernel got
// it.
func (s *socket) receive(buffer []byte) (n int, at time.Time, err error) {
	var received error
	control := make([]byte, unix.CmsgSpace(int(unsafe.Sizeof(unix.Timespec{}))))
	err = s.raw.Read(func(fd uintptr) bool {
		var oobn int
		n, oobn, _, _, received = unix.Recvmsg(int(fd), buffer, control, 0)
		if errors.Is(received, unix.EAGAIN) || errors.Is(received, unix.EINTR) {
			return false
		}
		at = timestamp(control[:oobn])
		return true
	})
	return n, at, errors.Join(err, received)
}

// timestamp finds the kernel's time in control messages.
func timestamp(control []byte) time.Time {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return time.Now()
	}
	for _, m := range messages {
		if m.Header.Type == unix.SCM_TIMESTAMPNS && len(m.Data) >= int(unsafe.Sizeof(unix.Timespec{})) {
			ts := (*unix.Timespec)(unsafe.Pointer(&m.Data[0]))
			return time.Unix(ts.Unix())
		}
	}
	return time.Now()
}

// dropped returns how many frames the kernel had no room for since it was last
// asked.
func (s *socket) dropped() (n int, err error) {
	control := s.raw.Control(func(fd uintptr) {
		var stats *unix.TpacketStats
		stats, err = unix.GetsockoptTpacketStats(int(fd), unix.SOL_PACKET, unix.PACKET_STATISTICS)
		if err == nil {
			n = int(stats.Drops)
		}
	})
	return n, errors.Join(control, err)
}

func (s *socket) close() error { return s.file.Close() }
