package lab

import (
	"fmt"
	"os"
	"path/filepath"
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
	return audit.Read(file, since)
}
