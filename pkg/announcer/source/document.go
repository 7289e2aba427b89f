package source

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

const (
	// acceptedConfigMap holds the document that the CCM has accepted, under
	// config.ConfigMapKey. Changing it is an API change.
	acceptedConfigMap = "ccm-baremetal-accepted"

	// filePoll is how often a configuration file is read again. Its content
	// decides: a mounted ConfigMap changes behind a symbolic link.
	filePoll = 2 * time.Second
)

var errNoKey = errors.New("no key " + config.ConfigMapKey)

// document is the configuration in force. Once there is one, only a better one
// replaces it: neither a fault nor a deletion takes it away. It is also the
// store of the reflector that follows the accepted ConfigMap.
type document struct {
	log     *slog.Logger
	changed func() // called after another document has come into force

	mu     sync.Mutex
	config config.Config
	text   string // that config was read from
	known  bool
	seen   [sha256.Size]byte // of the last document looked at, good or bad
	err    error             // what is wrong with that one
}

// current returns the configuration in force. If it is not known the error
// says why, or is nil if there is no document at all.
func (d *document) current() (config.Config, bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.config, d.known, d.err
}

// offer takes a document, or the error that came instead of one.
func (d *document) offer(text []byte, err error) {
	if err != nil {
		d.refuse(err, [sha256.Size]byte{})
		return
	}
	sum := sha256.Sum256(text)
	d.mu.Lock()
	same := d.seen == sum
	d.mu.Unlock()
	if same {
		return
	}
	c, err := config.Load(text)
	if err != nil {
		d.refuse(err, sum)
		return
	}
	d.accept(c, text, sum)
}

func (d *document) accept(c config.Config, text []byte, sum [sha256.Size]byte) {
	d.mu.Lock()
	changed := !d.known || d.config.Hash != c.Hash
	d.config, d.text, d.known, d.seen, d.err = c, string(text), true, sum, nil
	d.mu.Unlock()
	if changed {
		d.log.Info("configuration in force", "hash", c.Hash)
		d.changed()
	}
}

// refuse notes a fault and says it once.
func (d *document) refuse(err error, sum [sha256.Size]byte) {
	d.mu.Lock()
	again := d.err != nil && d.err.Error() == err.Error()
	d.seen, d.err = sum, err
	known, hash := d.known, d.config.Hash
	d.mu.Unlock()
	switch {
	case again:
	case known:
		d.log.Warn("configuration refused, keeping the last good one", "hash", hash, "err", err)
	default:
		d.log.Warn("configuration refused, waiting for a good one", "err", err)
	}
}

// followFile offers the file's content, and again when it changes, until ctx ends.
func (d *document) followFile(ctx context.Context, name string) {
	tick := time.NewTicker(filePoll)
	defer tick.Stop()
	for {
		d.offer(os.ReadFile(name))
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Add offers what the accepted ConfigMap holds.
func (d *document) Add(in any) error {
	o, ok := in.(*corev1.ConfigMap)
	if !ok {
		return fmt.Errorf("unexpected %T", in)
	}
	if o.Name != acceptedConfigMap { // from a client that knows no field selectors
		return nil
	}
	text, ok := o.Data[config.ConfigMapKey]
	if !ok {
		d.offer(nil, fmt.Errorf("ConfigMap %s/%s: %w", o.Namespace, o.Name, errNoKey))
		return nil
	}
	d.offer([]byte(text), nil)
	return nil
}

// Update offers what the accepted ConfigMap holds now.
func (d *document) Update(in any) error { return d.Add(in) }

// Delete does nothing: deleting the document keeps the configuration.
func (d *document) Delete(any) error { return nil }

// Replace offers what the accepted ConfigMap holds, if there is one.
func (d *document) Replace(list []any, _ string) error {
	for _, in := range list {
		if err := d.Add(in); err != nil {
			return err
		}
	}
	return nil
}

// Resync does nothing: what was refused stays refused.
func (d *document) Resync() error { return nil }
