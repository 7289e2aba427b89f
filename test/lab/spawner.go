package lab

import (
	"errors"
	"runtime"
	"sync"
)

// A spawner starts processes from one thread that lives until close. The
// kernel sends the parent-death signal when the thread that started a process
// ends, and of a Go program's threads any may end at any time.
type spawner struct {
	work   chan func()
	closed chan struct{}
	once   sync.Once
}

func newSpawner() *spawner {
	s := &spawner{work: make(chan func()), closed: make(chan struct{})}
	go s.run()
	return s
}

func (s *spawner) run() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for {
		select {
		case f := <-s.work:
			f()
		case <-s.closed:
			return
		}
	}
}

// do runs f on the thread and returns its error.
func (s *spawner) do(f func() error) error {
	result := make(chan error, 1)
	select {
	case s.work <- func() { result <- f() }:
		return <-result
	case <-s.closed:
		return errors.New("the lab is down")
	}
}

// close lets the thread go. Processes that it started and that still run then
// end at some time, so end them first.
func (s *spawner) close() { s.once.Do(func() { close(s.closed) }) }
