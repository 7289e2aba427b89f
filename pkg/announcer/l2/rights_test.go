package l2

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/plan"
)

// childEnv makes the test binary a small announcer: it holds the announcements
// as JSON.
const childEnv = "CCM_L2_CHILD"

func TestMain(m *testing.M) {
	if want := os.Getenv(childEnv); want != "" {
		if err := child(want); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child announces until its standard input ends. It insists on having no right
// but NET_RAW.
func child(encoded string) error {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	if only := fmt.Sprintf("CapEff:\t%016x\n", 1<<unix.CAP_NET_RAW); !strings.Contains(string(status), only) {
		return fmt.Errorf("want the capability NET_RAW only, have:\n%s", status)
	}
	var want []plan.Announcement
	if err := json.Unmarshal([]byte(encoded), &want); err != nil {
		return err
	}
	s := New(Options{})
	defer s.Close()
	if err := s.Set(context.Background(), want); err != nil {
		return err
	}
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// startChild runs the small announcer in the node's namespace, as a user without
// rights but one.
func startChild(t *testing.T, h *host, want ...plan.Announcement) (stop func() error) {
	t.Helper()
	encoded, err := json.Marshal(want)
	h.Must(err)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{childEnv + "=" + string(encoded)}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential:  &syscall.Credential{Uid: 65534, Gid: 65534},
		AmbientCaps: []uintptr{unix.CAP_NET_RAW},
		Pdeathsig:   syscall.SIGKILL,
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	h.Must(err)
	stdout, err := cmd.StdoutPipe()
	h.Must(err)
	h.Do(func() { err = cmd.Start() })
	h.Must(err)
	line := make([]byte, len("ready"))
	if _, err := io.ReadFull(stdout, line); err != nil {
		t.Fatalf("the announcer without rights: %v, %s", errors.Join(err, cmd.Wait()), stderr.String())
	}
	return func() error {
		stdin.Close()
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("%w: %s", err, stderr.String())
		}
		return nil
	}
}

func TestNetRawIsEnough(t *testing.T) {
	t.Parallel()
	node, client := newHost(t, "node"), newHost(t, "client")
	cable(node, "eth0", client, "eth0")
	client.Address("eth0", "192.0.2.200/24")
	client.Address("eth0", "2001:db8::c1/64")
	before := node.state()
	stop := startChild(t, node, own(vip, node.link("eth0")), own(vip6, node.link("eth0")))
	talk := newTalker(client)
	talk.resolves("eth0", vip, node.mac("eth0"))
	talk.resolves("eth0", vip6, node.mac("eth0"))
	if err := stop(); err != nil {
		t.Error(err)
	}
	if got := node.state(); got != before {
		t.Errorf("links and addresses afterwards:\n%s\nbefore:\n%s", got, before)
	}
}
