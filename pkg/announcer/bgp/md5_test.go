package bgp_test

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp"
)

// withoutMD5 makes the kernel know no TCP MD5 for the calling thread, for good:
// setsockopt of that option fails as it does in a kernel that was built without.
func withoutMD5() error {
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	unless := func(value uint32, skip uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: skip, K: value}
	}
	end := func(verdict uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: verdict}
	}
	const level, option = 16 + 8, 16 + 16 // where the second and the third argument are (struct seccomp_data)
	filter := []unix.SockFilter{
		load(0), unless(unix.SYS_SETSOCKOPT, 5),
		load(level), unless(unix.IPPROTO_TCP, 3),
		load(option), unless(unix.TCP_MD5SIG, 1),
		end(unix.SECCOMP_RET_ERRNO | uint32(unix.ENOPROTOOPT)),
		end(unix.SECCOMP_RET_ALLOW),
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
}

func TestB116KernelWithoutMD5OpensNoSessionWithoutIt(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	target := bgp.Target{Address: netip.MustParseAddr("127.0.0.1"), Port: l.Addr().(*net.TCPAddr).Port}
	guarded := target
	guarded.Password = "hush"
	type outcome struct{ filter, guarded, open error }
	done, more := make(chan outcome), make(chan bool)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		var o outcome
		if o.filter = withoutMD5(); o.filter == nil {
			_, o.guarded = bgp.Dial(t.Context(), guarded)
		}
		done <- o
		if <-more {
			_, o.open = bgp.Dial(t.Context(), target)
		}
		select {
		case done <- o:
		case <-t.Context().Done():
		}
	}()
	o := <-done
	defer close(more)
	if o.filter != nil {
		t.Fatalf("filter system calls: %v", o.filter)
	}
	if o.guarded == nil || !strings.Contains(o.guarded.Error(), "MD5 is not supported by this kernel") {
		t.Errorf("got %v", o.guarded)
	}
	if err := l.(*net.TCPListener).SetDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Accept(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("it has connected all the same: %v", err)
	}
	more <- true
	if o = <-done; o.open != nil {
		t.Errorf("nothing else is to fail: %v", o.open)
	}
}
