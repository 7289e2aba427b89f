package wire

import (
	"bytes"
	"sync"
)

// Log is what several goroutines, or a program, write while a test reads it.
// Its zero value is empty and ready for use.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write appends to the log. It never fails.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String returns what was written so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
