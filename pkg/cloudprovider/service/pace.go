package service

import (
	"sync"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/pkg/cloudprovider/ipam"
)

// The pace at which a status that others keep changing is put right again.
const (
	firstPause = time.Second
	longPause  = 5 * time.Minute
	peaceAfter = 10 * time.Minute // without a repair: the next one counts as the first
	fightAt    = 3                // repairs in a row that are told as a fight
)

// pace damps fights. To write again what was written before is a repair of
// what somebody else did; the first is made at once, the next ones after
// pauses that double, so that two controllers which both want a Service's
// status do not spend the API server on it.
type pace struct {
	mu      sync.Mutex
	written map[ipam.Key]*repairs
}

// repairs is the history of one Service.
type repairs struct {
	want   string // what was written last
	last   time.Time
	inARow int
}

func newPace() *pace {
	return &pace{written: map[ipam.Key]*repairs{}}
}

// pause returns how long a write of want has to wait.
func (p *pace) pause(key ipam.Key, want string, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.written[key]
	if r == nil || r.want != want || r.inARow == 0 || now.Sub(r.last) > peaceAfter {
		return 0
	}
	pause := longPause
	if shift := r.inARow - 1; shift < 10 {
		pause = min(pause, firstPause<<shift)
	}
	return max(0, r.last.Add(pause).Sub(now))
}

// wrote records a write, and returns how many in a row were repairs.
func (p *pace) wrote(key ipam.Key, want string, now time.Time) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.written[key]
	if r == nil || r.want != want {
		p.written[key] = &repairs{want: want, last: now}
		return 0
	}
	if now.Sub(r.last) > peaceAfter {
		r.inARow = 0
	}
	r.inARow++
	r.last = now
	return r.inARow
}

// forget drops the history of a Service that is gone.
func (p *pace) forget(key ipam.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.written, key)
}
