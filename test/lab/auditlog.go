package lab

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab/audit"
)

func (l *Lab) auditLog() string { return filepath.Join(l.LogDir(), "audit.log") }

// Audit returns the requests that the API server got at or after since and has
// answered by now. The zero time means all. It records every request of
// everybody, the components of Kubernetes and the lab itself included.
func (l *Lab) Audit(since time.Time) (audit.Log, error) {
	file, err := os.Open(l.auditLog())
	if err != nil {
		return nil, fmt.Errorf("open the audit log: %w", err)
	}
	defer file.Close()
	if err := l.audited.skip(file, since); err != nil {
		return nil, fmt.Errorf("look for %s in the audit log: %w", since.Format(time.TimeOnly), err)
	}
	return audit.Read(file, since)
}

// lengths are how long a log was at some times. Who waits for an event reads
// the log again and again, and that of a long run is long: what was in it at a
// time is of requests from before that.
type lengths struct {
	mu    sync.Mutex
	known []length // in the order of time
}

type length struct {
	at    time.Time
	bytes int64
}

// skip notes how long a log is now, and moves on to the first whole line that
// may be of a request at or after since.
func (k *lengths) skip(file *os.File, since time.Time) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	now := length{time.Now(), info.Size()} // in this order: what comes later is behind it
	k.mu.Lock()
	defer k.mu.Unlock()
	var from int64
	for _, l := range k.known {
		if !l.at.After(since) {
			from = l.bytes
		}
	}
	if n := len(k.known); n == 0 || k.known[n-1].bytes != now.bytes {
		k.known = append(k.known, now)
	}
	return seekLine(file, from)
}

// seekLine moves to the first line that begins at or after an offset.
func seekLine(file *os.File, offset int64) error {
	if offset == 0 {
		return nil
	}
	if _, err := file.Seek(offset-1, io.SeekStart); err != nil {
		return err
	}
	one := make([]byte, 1)
	for {
		if _, err := file.Read(one); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if one[0] == '\n' {
			return nil
		}
	}
}
