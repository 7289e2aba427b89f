package watchdog

import (
	"testing"
	"time"
)

func TestSilenceIsAnUninterruptedStretch(t *testing.T) {
	const none = -1
	for _, test := range []struct {
		name string
		seen []sight // one a minute
		want int     // in which minute the silence began
	}{
		{"nothing was seen", nil, none},
		{"all are ready", []sight{{3, 3}}, none},
		{"one is ready", []sight{{3, 1}}, none},
		{"none is ready", []sight{{3, 0}}, 0},
		{"it began with the first sight of it", []sight{{3, 1}, {3, 0}, {2, 0}}, 1},
		{"one was ready in between", []sight{{3, 0}, {3, 1}, {3, 0}}, 2},
		{"none is ready any more", []sight{{3, 0}, {3, 3}}, none},
		{"no pod is wanted", []sight{{0, 0}}, none},
		{"no pod is wanted any more", []sight{{3, 0}, {0, 0}}, none},
	} {
		t.Run(test.name, func(t *testing.T) {
			began := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
			var s silence
			for i, seen := range test.seen {
				s = s.after(seen, began.Add(time.Duration(i)*time.Minute))
			}
			at, ok := s.due()
			if ok != (test.want != none) {
				t.Fatalf("there is silence: %v", ok)
			}
			if want := began.Add(time.Duration(test.want+1) * time.Minute); ok && !at.Equal(want) {
				t.Errorf("to be spoken of at %s, want %s", at, want)
			}
		})
	}
}
