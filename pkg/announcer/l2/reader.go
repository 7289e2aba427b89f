package l2

import (
	"sync/atomic"
	"time"
)

const (
	// frameRoom holds every frame that we answer; a longer one arrives cut off.
	frameRoom = 2048

	// replyRoom holds every reply.
	replyRoom = 128

	// A reader that meets errors waits longer and longer.
	firstPause = 10 * time.Millisecond
	lastPause  = time.Second
)

// sighting is a station that says it has the address of a claim.
type sighting struct {
	claim     *claim
	by        mac
	announced bool // to everybody
}

// reader answers on one packet socket. It runs until it is stopped and never
// waits for the loop.
type reader struct {
	protocol protocol
	conn     conn
	table    *atomic.Pointer[table]
	stats    *familyStats
	passed   *atomic.Uint64 // broadcasts that were read
	quit     chan struct{}  // closed before conn is
	done     chan struct{}  // closed by run

	sightings chan<- sighting
	broken    *atomic.Bool    // set when reading fails
	wake      chan<- struct{} // capacity 1: something changed that the loop should look at
}

func (r *reader) run() {
	defer close(r.done)
	read, send := r.conn.reader(), r.conn.sender()
	frame, buf := make([]byte, frameRoom), make([]byte, 0, replyRoom)
	pause := firstPause
	for {
		n, err := read(frame)
		if err == nil {
			pause = firstPause
			r.handle(frame[:n], buf, send)
			continue
		}
		if !r.endure(pause) {
			return
		}
		pause = min(2*pause, lastPause)
	}
}

// endure tells the loop of an error and waits. It returns false when the
// reader was stopped.
func (r *reader) endure(pause time.Duration) bool {
	select {
	case <-r.quit:
		return false
	default:
	}
	r.broken.Store(true)
	r.nudge()
	select {
	case <-r.quit:
		return false
	case <-time.After(pause):
		return true
	}
}

// handle does what a frame asks for.
func (r *reader) handle(frame, buf []byte, send func([]byte) error) {
	if len(frame) >= ethernetLen && mac(frame) == broadcast {
		r.passed.Add(1)
	}
	v := r.protocol.judge(r.table.Load(), frame, buf)
	if v.seen != nil {
		r.saw(v)
	}
	if v.reply == nil {
		r.stats.dropped[v.cause].Add(1)
		return
	}
	r.stats.requests.Add(1)
	if err := send(v.reply); err != nil {
		r.stats.unsent.Add(1)
		return
	}
	r.stats.replies.Add(1)
}

// saw ends a hand-over whose winner was heard, and tells the loop of any other
// station. What the loop has no room for it will hear of again, and an address
// that it is asking for it asks for again.
func (r *reader) saw(v verdict) {
	if v.announced && v.seen.release(v.by) {
		r.nudge()
		return
	}
	select {
	case r.sightings <- sighting{v.seen, v.by, v.announced}:
	default:
		v.seen.missed.Store(true)
	}
}

func (r *reader) nudge() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// stop ends the reader and closes its socket.
func (r *reader) stop() {
	close(r.quit)
	r.conn.close()
	<-r.done
}
