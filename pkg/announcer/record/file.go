package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/announcer/settling"
)

const (
	// version is that of the file's format. Readers take no other.
	version = 1

	// maxFile is more than the longest history takes.
	maxFile = 64 << 10
)

// document is the file.
type document struct {
	Version int              `json:"version"`
	Events  settling.History `json:"events"`
}

// load reads a history. A file that is not there is no error, and an empty
// path is none that could be there.
func load(path string) (settling.History, error) {
	if path == "" {
		return nil, nil
	}
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("it has more than %d bytes", maxFile)
	}
	return parse(text)
}

func parse(text []byte) (settling.History, error) {
	var d document
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, fmt.Errorf("parse: %w", err)
	}
	if d.Version != version {
		return nil, fmt.Errorf("it has version %d, this release reads %d", d.Version, version)
	}
	return d.Events, nil
}

// store replaces the file as a whole: whenever the machine stops, the old one
// is there or the new one. A rest of an attempt is overwritten by the next.
func store(path string, history settling.History) error {
	if path == "" {
		return nil
	}
	text, err := json.Marshal(document{version, history})
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	next := path + ".tmp"
	if err := write(next, append(text, '\n')); err != nil {
		return err
	}
	if err := os.Rename(next, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// write writes a file and waits until it is on the disk.
func write(path string, text []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	if _, err = file.Write(text); err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

// syncDir waits until the directory's new entry is on the disk.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
