package frrhost

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// The files in the shared directory. Changing a name is an API change.
const (
	confFile   = "frr.conf"
	newFile    = ".frr.conf.new" // in the making
	resultFile = "result.json"
	stateFile  = "state.json"
)

// result is what became of a configuration.
type result struct {
	Hash  string `json:"hash"`  // SHA-256 of the file
	Error string `json:"error"` // empty: FRR has it
}

// report is what FRR says of its sessions.
type report struct {
	At    float64                               `json:"at"`    // seconds since 1970
	Error string                                `json:"error"` // why FRR says nothing
	BGP   map[string]map[string]json.RawMessage `json:"bgp"`   // VRF, neighbour
}

func (r report) age(now time.Time) time.Duration {
	return now.Sub(time.UnixMilli(int64(r.At * 1000)))
}

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// readConf returns the configuration that is there, "" if none is.
func readConf(dir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, confFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read FRR's configuration: %w", err)
	}
	return string(text), nil
}

// writeConf replaces the configuration as a whole. Only root may read it: it
// has passwords in it. So the new file is never one that somebody else has put
// there. Its name is always the same: so are the errors, and what a crash leaves
// is replaced too.
func writeConf(dir, text string) error {
	name := filepath.Join(dir, newFile)
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("write FRR's configuration: %w", err)
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("write FRR's configuration: %w", err)
	}
	_, err = f.WriteString(text)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(name, filepath.Join(dir, confFile))
	}
	if err != nil {
		return fmt.Errorf("write FRR's configuration: %w", errors.Join(err, os.Remove(name)))
	}
	return nil
}

// read reads one of the files that are written beside FRR. One that is not
// there yet is no error, and leaves into as it is.
func read(dir, name string, into any) error {
	text, err := os.ReadFile(filepath.Join(dir, name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("read what FRR says: %w", err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	return nil
}
