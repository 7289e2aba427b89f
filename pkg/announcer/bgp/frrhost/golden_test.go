package frrhost_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/bgp/frr"
)

// A real FRR takes each configuration that can be written, after another one's
// leftovers, and then has exactly that: asking for the difference finds none.
// Some are given twice, and the second time change nothing, and some to an FRR
// that has nothing.
func TestB146FRRHasWhatEveryGoldenFileSays(t *testing.T) {
	t.Parallel()
	h := newHost(t, "g")
	h.frr("")
	h.reloader()
	files, err := filepath.Glob("../frr/testdata/*.conf")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d files (%v)", len(files), err)
	}
	for i, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		h.give(text)
		switch i % 5 {
		case 1:
			before := h.vtysh("show running-config")
			h.give(append(bytes.Clone(text), "! again\n"...))
			if after := h.vtysh("show running-config"); before != after {
				t.Errorf("%s: FRR has been changed by what it had", name)
			}
		case 3:
			h.give([]byte(frr.Empty))
			h.give(text)
		}
	}
}

// give makes a text the configuration, and waits until FRR has it.
func (h *host) give(text []byte) {
	h.t.Helper()
	conf := filepath.Join(h.dir, "frr.conf")
	if err := os.WriteFile(conf+".new", text, 0o600); err != nil {
		h.t.Fatal(err)
	}
	if err := os.Rename(conf+".new", conf); err != nil {
		h.t.Fatal(err)
	}
	sum := sha256.Sum256(text)
	h.eventually(func() error {
		said, err := os.ReadFile(filepath.Join(h.dir, "result.json"))
		if err != nil {
			return err
		}
		var r struct{ Hash, Error string }
		if err := json.Unmarshal(said, &r); err != nil {
			return err
		}
		if r.Error != "" && r.Hash == hex.EncodeToString(sum[:]) {
			h.t.Fatalf("%s\nof\n%s", r.Error, text)
		}
		if r.Hash != hex.EncodeToString(sum[:]) {
			return fmt.Errorf("FRR has not looked at %s", text)
		}
		return nil
	})
}
