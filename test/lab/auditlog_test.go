package lab

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/ccm-baremetal/ccm-baremetal/test/lab/audit"
)

// Whatever has been read before, and wherever that ended: all requests at or
// after a time are found, and what lies before a time that was asked for once
// is not even looked at.
func TestAuditLogIsReadFromWhereItMatters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	write := func(text string) {
		t.Helper()
		if _, err := file.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	line := func(name string) string {
		return fmt.Sprintf(`{"stage":"ResponseComplete","verb":"get","objectRef":{"name":%q},"requestReceivedTimestamp":%q}`+"\n",
			name, time.Now().UTC().Format(time.RFC3339Nano))
	}
	var known lengths
	names := func(since time.Time) []string {
		t.Helper()
		again, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer again.Close()
		if err := known.skip(again, since); err != nil {
			t.Fatal(err)
		}
		log, err := audit.Read(again, since)
		if err != nil {
			t.Fatal(err)
		}
		all := []string{}
		for _, e := range log {
			all = append(all, e.Name)
		}
		return all
	}
	want := func(since time.Time, all ...string) {
		t.Helper()
		if got := names(since); !slices.Equal(got, all) {
			t.Errorf("since %s: %q, want %q", since.Format(time.StampNano), got, all)
		}
	}

	begin := time.Now()
	write(line("a"))
	want(begin, "a")
	want(time.Time{}, "a")
	after := time.Now()
	b := line("b")
	write(b[:20])
	want(after) // its end is being written
	write(b[20:] + line("c"))
	want(after, "b", "c")
	want(begin, "a", "b", "c")

	before, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	middle := time.Now()
	write(line("d"))
	want(middle, "d")
	if err := known.skip(file, middle); err != nil {
		t.Fatal(err)
	}
	if from, err := file.Seek(0, io.SeekCurrent); err != nil || from != before.Size() {
		t.Errorf("read from %d on, %v; what has come since then begins at %d", from, err, before.Size())
	}
}
