package ask

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ccm-baremetal/ccm-baremetal/test/golden"
)

// trace writes a file of events.
func trace(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "night.txt")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestSimulateTrace(t *testing.T) {
	night := trace(t, `# a bad night
1h     n1 restart 4s
1h1m   n1 restart 4s   # again
1h2m   n1 restart 4s
1h3m   n1 restart 4s
1h20m  n4 stall 1s

2h     n1 stall 100ms`)
	for file, args := range map[string][]string{
		"simulate-trace.txt":  {"simulate", "--trace", night},
		"simulate-trace.json": {"simulate", "--trace", night, "-o", "json"},
	} {
		out, err := ask(t, page(t), args...)
		if err != nil {
			t.Fatal(err)
		}
		golden.Check(t, filepath.Join("testdata", file), out)
	}
}

func TestSimulateTraceThatMovesNothing(t *testing.T) {
	out, err := ask(t, page(t), "simulate", "--trace", trace(t, "1h n1 stall 100ms"), "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var got replayed
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	want := replayed{Addresses: 2, Events: 1, Settle: "30s", Moves: []timedMove{}, ByAddress: []moveCounts{}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestSimulateTraceErrors(t *testing.T) {
	for text, want := range map[string][]string{
		"":                       {"no event in it"},
		"# nothing\n":            {"no event in it"},
		"1h n1":                  {`line 1: "1h n1" is not TIME NODE restart|stall DURATION`},
		"\nx n9 crash 0s\n1h n1": {`line 2: "x" is no time`, "no live announcer on n9", `"crash" is neither`, `"0s" is no duration above zero`, "line 3: "},
		"-1h n1 stall 1s":        {`"-1h" is no time since the beginning`},
	} {
		_, err := ask(t, page(t), "simulate", "--trace", trace(t, text))
		for _, part := range want {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%q: %v, without %q", text, err, part)
			}
		}
	}
	if _, err := ask(t, page(t), "simulate", "--trace", "/nowhere"); err == nil || !strings.Contains(err.Error(), "--trace: open /nowhere") {
		t.Errorf("no such file: %v", err)
	}
	if _, err := ask(t, page(t), "simulate", "--trace", "/nowhere", "--lose", "n1"); err == nil || !strings.Contains(err.Error(), "goes with none of") {
		t.Errorf("two at once: %v", err)
	}
}

func TestTraceIsBounded(t *testing.T) {
	if _, err := parseTrace(strings.Repeat("1h n1 stall 1s\n", traceAtMost+1), []string{"n1"}); err == nil || !strings.Contains(err.Error(), "more than 100000") {
		t.Errorf("%v", err)
	}
}
