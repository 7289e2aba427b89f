package document

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// poll is how often a file is read again. Its content is compared, not its
// time: a mounted ConfigMap changes by a swapped symbolic link.
const poll = 2 * time.Second

// A File is the Source outside of a cluster. It is the truth for this process
// alone: what it says is stored nowhere.
type File struct {
	Path string
}

var _ Source = (*File)(nil)

// Missing names the file.
func (f *File) Missing() string {
	return fmt.Sprintf("no configuration: there is no valid document in %s", f.Path)
}

// Run reads the file again and again.
func (f *File) Run(ctx context.Context, k *Keeper) {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	last := ""
	for {
		last = f.pass(ctx, k, last)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// pass offers the file's document if it says, or fails with, something else
// than last time; it returns what it says.
func (f *File) pass(ctx context.Context, k *Keeper, last string) string {
	document, err := os.ReadFile(f.Path)
	if err != nil {
		if last != err.Error() {
			k.refused(fmt.Errorf("read the configuration: %w", err))
		}
		return err.Error()
	}
	if string(document) == last {
		return last
	}
	err = k.offer(ctx, document, nil)
	if refusal := (*Refusal)(nil); errors.As(err, &refusal) {
		k.refused(refusal)
	} else if err != nil {
		k.log.Warn("configuration not judged, will retry", "err", err)
		return last
	}
	return string(document)
}
