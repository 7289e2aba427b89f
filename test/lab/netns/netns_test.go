package netns_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab"
	"github.com/ccm-baremetal/ccm-baremetal/test/lab/netns"
)

func TestDo(t *testing.T) {
	lab.Require(t)
	name := fmt.Sprintf("netns-test-%d", os.Getpid())
	ip(t, "netns", "add", name)
	t.Cleanup(func() { ip(t, "netns", "delete", name) })
	ip(t, "-n", name, "link", "set", "lo", "up")

	failure := errors.New("no")
	if err := netns.Do(name, func() error { return failure }); err != failure {
		t.Errorf("error of f: got %v", err)
	}
	if err := netns.Do("no-such-namespace", func() error { t.Error("f was called"); return nil }); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("namespace that does not exist: %v", err)
	}

	// A listener inside is reached from inside and not from here.
	listener, err := netns.Listen(name, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conn, err := netns.Dialer(name)(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if conn, err := net.Dial("tcp", listener.Addr().String()); err == nil {
		conn.Close()
		t.Error("the listener is reached from another namespace")
	}
	if _, err := netns.Dialer(name)(t.Context(), "tcp", "localhost:80"); err == nil {
		t.Error("a name was dialled")
	}
}

func TestID(t *testing.T) {
	lab.Require(t)
	a, b := fmt.Sprintf("netns-test-a-%d", os.Getpid()), fmt.Sprintf("netns-test-b-%d", os.Getpid())
	for _, name := range []string{a, b} {
		ip(t, "netns", "add", name)
		t.Cleanup(func() { ip(t, "netns", "delete", name) })
	}
	idA, errA := netns.Of(a)
	again, errAgain := netns.Of(a)
	idB, errB := netns.Of(b)
	own, errOwn := netns.OfProcess(os.Getpid())
	if err := errors.Join(errA, errAgain, errB, errOwn); err != nil {
		t.Fatal(err)
	}
	if idA != again || idA == idB || own == idA || own == idB {
		t.Errorf("a %v and %v, b %v, own %v", idA, again, idB, own)
	}
}

func ip(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %v: %v: %s", args, err, out)
	}
}
