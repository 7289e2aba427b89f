package source

import (
	"encoding/binary"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// linkReturn is how long a link that had lost its carrier must have it again
// before it counts as up: one that flaps carries nothing for long.
const linkReturn = 5 * time.Second

// carriers knows of every link whether its carrier can be relied upon, by
// index. The goroutine that reads the links owns it.
type carriers map[int]carrier

type carrier struct {
	had  bool      // the link has been up at a reading
	lost bool      // it has not been up for linkReturn since it was down
	back time.Time // since when it is up again, zero: it is not, or was never away
}

// settle takes a reading of all links, of which some were down since the one
// before, if only for a moment. It sets down in it what has not been up again
// for long enough, and returns when the next of these will have been, zero for
// never. A link that is up when it is first seen counts at once.
func (c carriers) settle(t *linkTable, dropped map[int]bool, now time.Time) time.Time {
	var wake time.Time
	present := map[int]bool{}
	for i := range t.links {
		l := &t.links[i]
		present[l.Index] = true
		state := c[l.Index].next(l.Up, dropped[l.Index], now)
		c[l.Index] = state
		l.Up = l.Up && !state.lost
		if due := state.back.Add(linkReturn); state.lost && !state.back.IsZero() && (wake.IsZero() || due.Before(wake)) {
			wake = due
		}
	}
	for index := range c {
		if !present[index] {
			delete(c, index)
		}
	}
	return wake
}

// next returns the state after a reading at now.
func (c carrier) next(up, dropped bool, now time.Time) carrier {
	switch {
	case !up:
		return carrier{had: c.had, lost: c.had}
	case dropped && c.had:
		return carrier{had: true, lost: true, back: now}
	case !c.lost:
		return carrier{had: true}
	case c.back.IsZero():
		c.back = now
	case now.Sub(c.back) >= linkReturn:
		return carrier{had: true}
	}
	return c
}

// drops collects which links were reported to be down. It exists because a
// flap may be over before the links are read.
type drops struct {
	mu      sync.Mutex
	indices map[int]bool
}

func (d *drops) note(messages []syscall.NetlinkMessage) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range messages {
		if index, down := dropped(m); down {
			if d.indices == nil {
				d.indices = map[int]bool{}
			}
			d.indices[index] = true
		}
	}
}

// take returns what was collected since the last time.
func (d *drops) take() map[int]bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := d.indices
	d.indices = nil
	return out
}

// dropped tells whether a message says that a link passes no frames, and
// which. It looks at the fixed part (struct ifinfomsg) only.
func dropped(m syscall.NetlinkMessage) (index int, down bool) {
	const passes = unix.IFF_UP | unix.IFF_RUNNING | unix.IFF_LOWER_UP
	if m.Header.Type != unix.RTM_NEWLINK || len(m.Data) < unix.SizeofIfInfomsg {
		return 0, false
	}
	index = int(int32(binary.NativeEndian.Uint32(m.Data[4:])))
	return index, binary.NativeEndian.Uint32(m.Data[8:])&passes != passes
}
