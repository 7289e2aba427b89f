// Package document decides which configuration document is in force. A
// document comes from the ConfigMap that the user edits, or from a file. It is
// validated and judged against what Services hold before it counts; one that
// is refused is told to whoever wrote it, and the last good one stays in force.
//
// What was accepted from the user's ConfigMap is stored in a second one. The
// announcers read only that, and a restarted process begins with it, so that
// neither ever depends on a document that nobody has checked. It judges the
// user's document first: what was edited while nobody led would else be decided
// by the former one for a moment, and an address once given stays. A document that
// was refused because it would change too much stays refused, over restarts and
// changes of the leader, until somebody edits it: what it would do may look
// harmless at another moment.
package document

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"

	"k8s.io/controller-manager/pkg/healthz"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/config"
)

// ControllerName is the name of a Keeper among the framework's controllers
// and health checks. Changing it is an API change.
const ControllerName = "configuration-controller"

// A Target is what a document configures.
type Target interface {
	// Resume tells, before the first Apply, which configuration was in force
	// before this process. Impact compares with it, and nothing else may be
	// decided by it: the document that is wanted may be another by now. It must
	// not block.
	Resume(c config.Config)
	// Apply puts a configuration in force. It must not block.
	Apply(c config.Config)
	// Impact tells which addresses in use a configuration would take away,
	// move or leave to no Node, one sentence for each, and how many are in use.
	// It may wait until that is known. Without a configuration in force it goes
	// by what the Services say that they were given.
	Impact(ctx context.Context, c config.Config) (lost []string, inUse int, err error)
}

// A Source is where a Keeper gets documents from.
type Source interface {
	// Run offers documents to the keeper until ctx ends.
	Run(ctx context.Context, k *Keeper)
	// Missing says, in one sentence, what to do when there is no document at all.
	Missing() string
}

// A Refusal is why a document does not count.
type Refusal struct {
	Err error

	// Hash is that of a document that is right in itself and would change too
	// much; empty for one with faults.
	Hash string
}

// Error gives all that is wrong with the document.
func (r *Refusal) Error() string { return r.Err.Error() }

// Unwrap returns what is wrong with the document.
func (r *Refusal) Unwrap() error { return r.Err }

// A Keeper holds the document in force. Its methods may be called concurrently.
type Keeper struct {
	source Source
	target Target
	log    *slog.Logger

	mu       sync.Mutex
	document []byte         // in force, or resumed; nil: none
	resumed  *config.Config // that of the document if it is not in force yet
	hash     string
	stale    bool
}

// NewKeeper returns a Keeper that has no document yet.
func NewKeeper(source Source, target Target, log *slog.Logger) *Keeper {
	return &Keeper{source: source, target: target, log: log}
}

// Name returns the name under which the framework knows the Keeper.
func (k *Keeper) Name() string { return ControllerName }

// Run follows the source until ctx ends.
func (k *Keeper) Run(ctx context.Context) { k.source.Run(ctx, k) }

// HealthChecker returns a check that fails while there is no configuration.
// It is meant for readiness; a restart helps nobody, so a liveness probe should
// leave it out: /healthz?exclude=configuration-controller.
func (k *Keeper) HealthChecker() healthz.UnnamedHealthChecker { return (*check)(k) }

type check Keeper

// Check implements healthz.UnnamedHealthChecker.
func (c *check) Check(*http.Request) error {
	if k := (*Keeper)(c); k.inForce() == nil {
		return errors.New(k.source.Missing())
	}
	return nil
}

// inForce returns the document in force, or else the resumed one, nil if there
// is none.
func (k *Keeper) inForce() []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.document
}

// offer judges a document and puts it in force. The error is a *Refusal if
// the document is to blame; any other means that it should be offered again.
// Before the document counts, store (if not nil) keeps it for the next start.
func (k *Keeper) offer(ctx context.Context, document []byte, store func(context.Context, []byte) error) error {
	if current := k.inForce(); current != nil && bytes.Equal(document, current) {
		k.fresh()
		return nil
	}
	c, err := k.judge(ctx, document)
	if err != nil {
		return err
	}
	if store != nil {
		if err := store(ctx, document); err != nil {
			return err
		}
	}
	k.apply(c, document)
	return nil
}

// judge tells whether a document may replace the one in force.
func (k *Keeper) judge(ctx context.Context, document []byte) (config.Config, error) {
	c, err := config.Load(document)
	if err != nil {
		return config.Config{}, &Refusal{Err: err}
	}
	lost, inUse, err := k.target.Impact(ctx, c)
	if err != nil {
		return config.Config{}, fmt.Errorf("judge the document: %w", err)
	}
	if err := MassChange(lost, inUse, c.Services.AllowMassChange); err != nil {
		return config.Config{}, &Refusal{Err: err, Hash: c.Hash}
	}
	return c, nil
}

// MassChange is why a document is refused that would take away, move or leave
// to no Node more than a fifth, and more than five, of the addresses in use,
// unless it allows that itself; nil if it is not refused. Lost has one sentence
// for each such address.
func MassChange(lost []string, inUse int, allowed bool) error {
	if allowed || len(lost) <= 5 || 5*len(lost) <= inUse {
		return nil
	}
	return fmt.Errorf("%d of %d addresses in use would be taken away, moved or announced by no Node; if that is meant, set services.allowMassChange: true; %s",
		len(lost), inUse, strings.Join(lost, "; "))
}

// resume begins with a document that was in force before. It comes into force
// again by settle, unless another one does before.
func (k *Keeper) resume(c config.Config, document []byte) {
	k.target.Resume(c)
	k.mu.Lock()
	k.document, k.hash, k.resumed = document, c.Hash, &c
	k.mu.Unlock()
}

// settle puts the resumed document in force if no other one has come into
// force since.
func (k *Keeper) settle() {
	k.mu.Lock()
	c := k.resumed
	k.resumed = nil
	k.mu.Unlock()
	if c != nil {
		k.target.Apply(*c)
		k.log.Info("configuration in force", "hash", c.Hash, "was", c.Hash)
	}
}

// apply puts a document in force.
func (k *Keeper) apply(c config.Config, document []byte) {
	k.target.Apply(c)
	k.mu.Lock()
	was := k.hash
	k.document, k.hash, k.resumed, k.stale = document, c.Hash, nil, false
	k.mu.Unlock()
	k.log.Info("configuration in force", "hash", c.Hash, "was", was)
}

// fresh records that the document in force is the one that is wanted.
func (k *Keeper) fresh() {
	k.mu.Lock()
	was := k.stale
	k.stale = false
	k.mu.Unlock()
	if was {
		k.log.Info("the document in force is the one that is wanted again")
	}
}

// refused records that the document in force is not the one that is wanted.
func (k *Keeper) refused(err error) {
	k.mu.Lock()
	k.stale = true
	hash := k.hash
	k.mu.Unlock()
	k.log.Warn("document refused, the last good one stays in force", "in force", hash, "err", err)
}
