package frrhost_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ccm-baremetal/ccm-baremetal/test/wire"
)

// babbler is a vtysh that shows the configuration to whoever asks for anything,
// and cannot do it. It knows all clients of zebra, so that it is asked on.
const babbler = `#!/bin/sh
case "$*" in *"client summary"*) echo "bgp 1"; echo "bfd 1"; [ ! -e "$FRR_RUN/unready" ]; exit ;; esac
echo " neighbor 192.0.2.1 password s3cret"
echo "% line 7: neighbor 192.0.2.1 password s3cret" >&2
exit 1
`

// beside runs what runs beside FRR, with another vtysh, and returns the
// directory that it shares, FRR's, and what it says.
func beside(t *testing.T, vtysh string) (h *host, run string, log *wire.Log) {
	t.Helper()
	need(t, "python3", "sh")
	dir, bin := t.TempDir(), t.TempDir()
	run = t.TempDir()
	h = &host{t: t, dir: dir}
	for path, text := range map[string]string{
		filepath.Join(bin, "vtysh"): vtysh, filepath.Join(run, "bgpd.vty"): "", filepath.Join(dir, "frr.conf"): "router bgp 64500\n neighbor 192.0.2.1 password s3cret\nexit\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	log = &wire.Log{}
	cmd := exec.Command("python3", "../../../../manifests/bgp-frr/reload.py", dir)
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "FRR_RUN="+run, "FRR_CONFIG="+run, "FRR_USER=root")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		if err := <-ended; err != nil {
			t.Errorf("it ended by itself: %v\n%s", err, log.String())
		}
	})
	return h, run, log
}

// says waits until a file has words in it, and fails if it ever has the
// password.
func (h *host) says(name string, words ...string) {
	h.t.Helper()
	h.eventually(func() error {
		text, err := os.ReadFile(filepath.Join(h.dir, name))
		if strings.Contains(string(text), password) {
			h.t.Fatalf("the password is in %s: %s", name, text)
		}
		for _, w := range words {
			if err == nil && !strings.Contains(string(text), w) {
				err = fmt.Errorf("no %q in %s: %s", w, name, text)
			}
		}
		return err
	})
}

func TestNoPasswordLeavesTheReloaderByItsErrors(t *testing.T) {
	t.Parallel()
	h, run, log := beside(t, babbler)
	h.says("result.json", "FRR does not say what it has", "line 7", "password ***")
	h.says("state.json", "line 7", "password ***")
	if err := os.WriteFile(filepath.Join(run, "unready"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	h.says("result.json", "FRR is not ready")
	if strings.Contains(log.String(), password) {
		t.Errorf("the password is in what it says:\n%s", log.String())
	}
}

func TestTheReloaderOutlivesFilesThatItCannotWrite(t *testing.T) {
	t.Parallel()
	h, _, log := beside(t, strings.Replace(babbler, "exit 1", "exit 0", 1))
	h.says("result.json", "FRR differs")
	for _, name := range []string{"result.json", "state.json"} {
		path := filepath.Join(h.dir, name)
		h.eventually(func() error { // until it is not just being replaced
			return errors.Join(os.RemoveAll(path), os.MkdirAll(filepath.Join(path, "full"), 0o755))
		})
		h.eventually(func() error {
			if got := strings.Count(log.String(), "cannot write "+name); got != 1 {
				return fmt.Errorf("%s: said %d times: %s", name, got, log.String())
			}
			return nil
		})
	}
	for name, word := range map[string]string{"result.json": "password ***", "state.json": "no JSON"} {
		if err := os.RemoveAll(filepath.Join(h.dir, name)); err != nil {
			t.Fatal(err)
		}
		h.says(name, word)
	}
	if got := strings.Count(log.String(), "\n"); got != 2 {
		t.Errorf("it has said %d lines:\n%s", got, log.String())
	}
}

func TestTheReloaderWritesNoFileOfOthers(t *testing.T) {
	t.Parallel()
	h, _, log := beside(t, babbler)
	h.says("state.json", "password ***")
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(victim, []byte("mine"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"result.json", "state.json"} {
		link := filepath.Join(h.dir, name+".new")
		h.eventually(func() error { return os.Symlink(victim, link) })
		h.eventually(func() error {
			if _, err := os.Lstat(link); err == nil {
				return errors.New("nothing is written")
			}
			return nil
		})
		h.says(name, "password ***")
	}
	if got, err := os.ReadFile(victim); string(got) != "mine" || log.String() != "" {
		t.Errorf("the symbolic link was followed: %q (%v) %s", got, err, log.String())
	}
}
