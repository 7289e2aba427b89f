package eventtext

import (
	"strings"
	"testing"
)

func TestLongMessagesFitIntoAnEvent(t *testing.T) {
	for _, text := range []string{strings.Repeat("x", 1024), strings.Repeat("é", 1024)} {
		if got := Limit(text); len(got) > 1024 || (len(text) <= 1024) != (got == text) {
			t.Errorf("%d bytes become %d", len(text), len(got))
		}
	}
}
