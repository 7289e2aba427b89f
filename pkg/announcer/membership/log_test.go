package membership

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// plainLog writes lines without their time.
func plainLog(b *bytes.Buffer, level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

func TestComplaintsAreLoggedAsEdges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := newBridge(plainLog(&out, slog.LevelInfo)).logger()
		for range 50 {
			l.Printf("[ERR] memberlist: Decrypt packet failed: no installed keys from=192.0.2.1:7956")
			time.Sleep(time.Second)
		}
		l.Printf("[DEBUG] memberlist: Stream connection from=192.0.2.1:1")
		l.Printf("[WARN] memberlist: Refuting a suspect message (from: n1)")
		time.Sleep(20 * time.Second)
		l.Printf("[ERR] memberlist: Decrypt packet failed: no installed keys from=192.0.2.9:7956")
		want := `level=WARN msg="memberlist complains" text="Decrypt packet failed: no installed keys from=192.0.2.1:7956" repeated=0
level=WARN msg="memberlist complains" text="Refuting a suspect message (from: n1)" repeated=0
level=WARN msg="memberlist complains" text="Decrypt packet failed: no installed keys from=192.0.2.9:7956" repeated=49
`
		if out.String() != want {
			t.Errorf("logged:\n%s\nwant:\n%s", out.String(), want)
		}
	})
}

func TestDebuggingShowsEveryLine(t *testing.T) {
	var out bytes.Buffer
	l := newBridge(plainLog(&out, slog.LevelDebug)).logger()
	l.Printf("[INFO] memberlist: Marking n1 as failed")
	l.Printf("[WARN] memberlist: Refuting a dead message")
	l.Printf("[WARN] memberlist: Refuting a dead message")
	l.Printf("no level")
	want := `level=DEBUG msg="memberlist reports" text="Marking n1 as failed"
level=WARN msg="memberlist complains" text="Refuting a dead message" repeated=0
level=DEBUG msg="memberlist complains again" text="Refuting a dead message"
level=DEBUG msg="memberlist reports" text="no level"
`
	if out.String() != want {
		t.Errorf("logged:\n%s\nwant:\n%s", out.String(), want)
	}
}

func TestKindsOfComplaintAreBounded(t *testing.T) {
	b := newBridge(slog.New(slog.DiscardHandler))
	for i := range 1000 {
		b.complain(strings.Repeat("x", i), time.Now())
	}
	if n := len(b.complaints); n > maxComplaints+1 {
		t.Errorf("%d kinds are remembered", n)
	}
}
