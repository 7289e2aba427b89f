package service

import (
	"sync"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/ipam"
)

// troubles knows what stands in the way of which Service's write, so that it is
// told once and not at each of the attempts.
type troubles struct {
	mu   sync.Mutex
	told map[ipam.Key]string
}

func newTroubles() *troubles { return &troubles{told: map[ipam.Key]string{}} }

// isNews tells whether a trouble is another one than before, and notes it.
func (t *troubles) isNews(key ipam.Key, what string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if before, known := t.told[key]; known && before == what {
		return false
	}
	t.told[key] = what
	return true
}

// forget ends the trouble of a Service.
func (t *troubles) forget(key ipam.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.told, key)
}
