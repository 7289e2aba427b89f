package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// StateDir holds a directory per lab, called as the lab.
const StateDir = "/tmp/ccm-lab"

// Within the directory of a lab.
const (
	stateFile    = "lab.json"
	processesDir = "processes" // one file per process: what Down must end
	logsDir      = "logs"
	pkiDir       = "pki"
)

// state is what another program needs to take over a lab. It is on disk before
// anything else of the lab exists, and everything else follows from it.
type state struct {
	Name     string    `json:"name"`
	Nodes    int       `json:"nodes"`
	Detached bool      `json:"detached"`
	Owner    processID `json:"owner"` // the program that called Up
	Up       bool      `json:"up"`    // Up has come to its end
	Binaries Binaries  `json:"binaries"`

	NodeLifecycle bool `json:"nodeLifecycle,omitempty"`
	Uninitialized bool `json:"uninitialized,omitempty"`
}

// readState returns the state of the lab called name. Without such a lab the
// error is os.ErrNotExist.
func readState(name string) (state, error) {
	if err := checkName(name); err != nil {
		return state{}, err
	}
	var s state
	err := readJSON(filepath.Join(StateDir, name, stateFile), &s)
	return s, err
}

func (l *Lab) saveState() error {
	return writeJSON(filepath.Join(l.dir, stateFile), l.state)
}

// readProcesses loads what earlier programs have started.
func (l *Lab) readProcesses() error {
	files, err := filepath.Glob(filepath.Join(l.dir, processesDir, "*.json"))
	if err != nil {
		return err
	}
	for _, f := range files {
		var p Process
		if err := readJSON(f, &p); err != nil {
			return err
		}
		l.processes[p.file()] = &p
	}
	return nil
}

// Names returns the labs that exist on this machine, crashed ones included,
// sorted.
func Names() ([]string, error) {
	entries, err := os.ReadDir(StateDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, err
}

func readJSON(path string, v any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("decode %s: %w", path, err)
	}
	return nil
}

func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	return writeFile(path, b)
}

// writeFile replaces a file as a whole, so that a reader never sees half of it.
func writeFile(path string, data []byte) error {
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
