package settling

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// history reads lines such as "11:30 start".
func history(t *testing.T, text string) History {
	t.Helper()
	var h History
	for line := range strings.Lines(text) {
		clock, kind, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok {
			continue
		}
		at, err := time.Parse("15:04", clock)
		if err != nil {
			t.Fatal(err)
		}
		h = append(h, Event{noon.Truncate(24 * time.Hour).Add(at.Sub(at.Truncate(24 * time.Hour))), Kind(kind)})
	}
	return h
}

func TestWait(t *testing.T) {
	for _, c := range []struct {
		what, history string
		departures    int
		wait          time.Duration
	}{
		{"a newcomer", "", 0, 30 * time.Second},
		{"the first start", "12:00 start", 0, 30 * time.Second},
		{"a clean restart", "09:00 start\n11:59 stop\n12:00 start", 0, 30 * time.Second},
		{"a crash", "09:00 start\n12:00 start", 1, 30 * time.Second},
		{"two crashes", "09:00 start\n11:00 start\n12:00 start", 2, 2 * time.Minute},
		{"three", "09:00 start\n10:00 start\n11:00 start\n12:00 start", 3, 8 * time.Minute},
		{"four", "09:00 start\n09:30 start\n10:00 start\n11:00 start\n12:00 start", 4, 32 * time.Minute},
		{"five", "09:00 start\n09:20 start\n09:30 start\n10:00 start\n11:00 start\n12:00 start", 5, time.Hour},
		{"stalls count like crashes", "09:00 start\n10:00 death\n11:00 death\n12:00 death", 3, 8 * time.Minute},
		{"a stall before a crash", "09:00 start\n10:00 death\n12:00 start", 2, 2 * time.Minute},
		{"what is six hours old is forgotten", "01:00 start\n06:00 start\n06:01 start\n12:00 start", 2, 2 * time.Minute},
		{"three clean stops within an hour", "09:00 start\n11:10 stop\n11:11 start\n11:30 stop\n11:31 start\n11:50 stop\n12:00 start", 0, 30 * time.Second},
		{"the fourth counts", "09:00 start\n11:10 stop\n11:11 start\n11:30 stop\n11:31 start\n11:50 stop\n11:51 start\n11:58 stop\n12:00 start", 1, 30 * time.Second},
		{"the fifth too", "09:00 start\n11:10 stop\n11:11 start\n11:30 stop\n11:31 start\n11:50 stop\n11:51 start\n11:58 stop\n11:58 start\n11:59 stop\n12:00 start", 2, 2 * time.Minute},
		{"four in two hours do not", "09:00 start\n10:10 stop\n10:11 start\n10:50 stop\n10:51 start\n11:20 stop\n11:21 start\n11:55 stop\n12:00 start", 0, 30 * time.Second},
	} {
		h := history(t, c.history)
		if got := h.Departures(noon); got != c.departures {
			t.Errorf("%s: %d departures, want %d", c.what, got, c.departures)
		}
		if got := h.Wait(noon, 30*time.Second); got != c.wait {
			t.Errorf("%s: settles for %s, want %s", c.what, got, c.wait)
		}
	}
}

func TestNoSettlingWhereItIsSwitchedOff(t *testing.T) {
	h := history(t, "09:00 start\n09:30 start\n10:00 start\n11:00 start\n12:00 start")
	if got := h.Wait(noon, 0); got != 0 {
		t.Errorf("settles for %s", got)
	}
}

// TestB171ClockThatJumps: what a wrong clock has written is neither an obstacle
// for ever nor a way to escape.
func TestB171ClockThatJumps(t *testing.T) {
	var h History
	far := noon.AddDate(10, 0, 0)
	for range 5 {
		h = h.With(Event{far, Start})
	}
	h = h.Sane(noon)
	if got := h.Departures(noon); got != 4 {
		t.Errorf("%d departures count right after the clock went back, want 4", got)
	}
	if got := h.Departures(noon.Add(memory)); got != 0 {
		t.Errorf("%d departures count six hours later, want none", got)
	}
	if got := h.Departures(noon.AddDate(1, 0, 0)); got != 0 {
		t.Errorf("%d departures count after the clock went forward, want none", got)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	var h History
	for i := range 1000 {
		before := fmt.Sprint(h)
		next := h.With(Event{noon.Add(time.Duration(i) * time.Second), Start})
		if fmt.Sprint(h) != before {
			t.Fatal("the history before has changed")
		}
		h = next
	}
	if len(h) != maxEvents || !h[len(h)-1].At.Equal(noon.Add(999*time.Second)) {
		t.Errorf("%d events are kept, the last of %s", len(h), h[len(h)-1].At)
	}
	if got := h.Wait(noon.Add(1000*time.Second), 30*time.Second); got != longest {
		t.Errorf("settles for %s, want the longest time", got)
	}
}

func TestUnknownKindsAreLeftOut(t *testing.T) {
	h := History{{noon, Start}, {noon, "later"}, {noon, Stop}}.Sane(noon)
	if len(h) != 2 || h[1].Kind != Stop {
		t.Errorf("kept %v", h)
	}
}
