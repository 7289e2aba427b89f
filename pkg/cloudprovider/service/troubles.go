package service

import (
	"sync"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/ipam"
)

// retellAfter is when a trouble that lasts is told again: before the event of
// the last time is gone, which the API server keeps for an hour.
const retellAfter = 45 * time.Minute

// troubles knows what stands in the way of which Service's write, so that it is
// not told at each of the attempts.
type troubles struct {
	mu   sync.Mutex
	told map[ipam.Key]trouble
}

type trouble struct {
	what string
	at   time.Time // when it was told
}

func newTroubles() *troubles { return &troubles{told: map[ipam.Key]trouble{}} }

// isNews tells whether a trouble is another one than before, or has lasted for
// long, and notes that it is told.
func (t *troubles) isNews(key ipam.Key, what string, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if before, known := t.told[key]; known && before.what == what && now.Sub(before.at) < retellAfter {
		return false
	}
	t.told[key] = trouble{what, now}
	return true
}

// forget ends the trouble of a Service.
func (t *troubles) forget(key ipam.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.told, key)
}
