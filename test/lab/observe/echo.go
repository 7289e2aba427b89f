package observe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// An Echo sends numbered datagrams to a server that sends them back, all from
// one port, until it is stopped.
type Echo struct {
	conn  net.Conn
	quit  chan struct{}
	tasks sync.WaitGroup

	mu         sync.Mutex
	sent       []time.Time
	back       []bool
	duplicates int
}

// Loss is what an Echo has counted.
type Loss struct {
	Sent       int
	Lost       []time.Time // when those that never came back were sent
	Duplicates int
	// Longest is the longest time in which nothing that was sent came back,
	// from the first lost datagram to the next that was not lost.
	Longest time.Duration
}

func (l Loss) String() string {
	return fmt.Sprintf("%d datagrams, %d lost, longest gap %v, %d came twice", l.Sent, len(l.Lost), l.Longest.Round(time.Millisecond), l.Duplicates)
}

// StartEcho sends perSecond datagrams through conn, a connected UDP socket,
// which Stop closes.
func StartEcho(conn net.Conn, perSecond int) *Echo {
	e := &Echo{conn: conn, quit: make(chan struct{})}
	e.tasks.Go(func() { e.send(time.Second / time.Duration(perSecond)) })
	e.tasks.Go(e.receive)
	return e
}

// Stop ends the sending, waits for the last answers as long as patience says,
// and returns what was lost.
func (e *Echo) Stop(patience time.Duration) Loss {
	close(e.quit)
	time.Sleep(patience)
	e.conn.Close()
	e.tasks.Wait()
	return e.loss()
}

// send keeps the pace: what a busy machine made late is sent at once, so that
// the number of datagrams per second stays.
func (e *Echo) send(interval time.Duration) {
	payload := make([]byte, 8)
	for next := time.Now(); ; next = next.Add(interval) {
		select {
		case <-e.quit:
			return
		case <-time.After(time.Until(next)):
		}
		e.mu.Lock()
		binary.BigEndian.PutUint64(payload, uint64(len(e.sent)))
		e.sent, e.back = append(e.sent, time.Now()), append(e.back, false)
		e.mu.Unlock()
		if _, err := e.conn.Write(payload); err != nil {
			// The error is about an earlier datagram (that a host or port cannot
			// be reached), and it was reported instead of sending this one.
			e.conn.Write(payload)
		}
	}
}

func (e *Echo) receive() {
	buffer := make([]byte, 64)
	for {
		n, err := e.conn.Read(buffer)
		if n == 8 {
			e.came(binary.BigEndian.Uint64(buffer))
		}
		if errors.Is(err, net.ErrClosed) {
			return // any other error says that a datagram was lost
		}
	}
}

func (e *Echo) came(number uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if number >= uint64(len(e.sent)) {
		return // not ours
	}
	if e.back[number] {
		e.duplicates++
	}
	e.back[number] = true
}

func (e *Echo) loss() Loss {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := Loss{Sent: len(e.sent), Duplicates: e.duplicates}
	answered := true
	var gap time.Time // when the first of a row of lost datagrams was sent
	for i, at := range e.sent {
		if !e.back[i] {
			l.Lost = append(l.Lost, at)
			if answered {
				gap = at
			}
		}
		if !answered || !e.back[i] {
			l.Longest = max(l.Longest, at.Sub(gap))
		}
		answered = e.back[i]
	}
	return l
}
