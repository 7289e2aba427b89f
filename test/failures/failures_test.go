// Package failures tests scripts/failures, which tells of a long run of tests what
// the failed ones said.
package failures

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// steps are n lines of a test's own, the first and the last of which begin a message.
func steps(n int) string {
	return "    a_test.go:1: first\n" + strings.Repeat("        and more\n", n-2) + "    a_test.go:2: last\n"
}

const script = "../../scripts/failures"

func TestFailures(t *testing.T) {
	if _, err := os.Stat(script); err != nil { // also for the cache of tests, which knows it so
		t.Fatal(err)
	}
	for _, c := range []struct{ name, said, want string }{
		{"nothing failed", `=== RUN   TestA
    a_test.go:1: fine
--- PASS: TestA (0.10s)
PASS
ok  	x/a	0.2s
?   	x/b	[no test files]
`, ``},
		{"one of several failed", `up
=== RUN   TestA
    a_test.go:1: fine
--- PASS: TestA (0.10s)
=== RUN   TestB
step of B
=== RUN   TestB/one
    a_test.go:5: got 1
        want 2
=== RUN   TestB/two
    a_test.go:6: fine
=== NAME  TestB
    a_test.go:7: announcer on node-1 (running: true) said last:
        time=1
        time=2
    a_test.go:8: unclean
--- FAIL: TestB (0.10s)
    --- FAIL: TestB/one (0.00s)
    --- PASS: TestB/two (0.00s)
=== RUN   TestC
    a_test.go:9: not here
--- SKIP: TestC (0.00s)
FAIL
announcer on node-1 (running: true) said last:
time=3
FAIL	x/a	0.2s
FAIL
`, `
==> TestB of x/a
=== RUN   TestB
step of B
=== RUN   TestB/one
    a_test.go:5: got 1
        want 2
=== RUN   TestB/two
    a_test.go:6: fine
=== NAME  TestB
    a_test.go:7: announcer on node-1 (running: true) said last:
    a_test.go:8: unclean
--- FAIL: TestB (0.10s)
    --- FAIL: TestB/one (0.00s)

==> failed:
    TestB of x/a
`},
		{"tests that run side by side", `=== RUN   TestA
=== PAUSE TestA
=== RUN   TestB
=== PAUSE TestB
=== CONT  TestA
=== CONT  TestB
    a_test.go:2: of B
=== NAME  TestA
    a_test.go:1: of A
--- PASS: TestA (0.10s)
=== NAME  TestB
    a_test.go:3: of B
--- FAIL: TestB (0.10s)
FAIL
FAIL	x/a	0.2s
`, `
==> TestB of x/a
=== RUN   TestB
    a_test.go:2: of B
=== NAME  TestB
    a_test.go:3: of B
--- FAIL: TestB (0.10s)

==> failed:
    TestB of x/a
`},
		{"a long one", "=== RUN   TestA\n" + steps(100) + "--- FAIL: TestA (0.10s)\nFAIL\nFAIL\tx/a\t0.2s\n", `
==> TestA of x/a
    (of the first 42 lines only where a message begins)
    a_test.go:1: first
` + strings.Repeat("        and more\n", 58) + `    a_test.go:2: last
--- FAIL: TestA (0.10s)

==> failed:
    TestA of x/a
`},
		{"one out of time", `=== RUN   TestA
--- FAIL: TestA (0.10s)
=== RUN   TestB
    a_test.go:1: wait
panic: test timed out after 1s
	running tests:
		TestB (1s)
` + strings.Repeat("goroutine\n", 100) + `FAIL	x/a	1.0s
`, `
==> TestA of x/a
=== RUN   TestA
--- FAIL: TestA (0.10s)

==> TestB of x/a (did not end)
=== RUN   TestB
    a_test.go:1: wait
panic: test timed out after 1s
	running tests:
		TestB (1s)
` + strings.Repeat("goroutine\n", 22) + `
==> failed:
    TestA of x/a
    TestB of x/a (did not end)
`},
		{"packages that failed without a test", `# x/a [x/a.test]
a_test.go:1:1: undefined: b
FAIL	x/a [build failed]
=== RUN   TestA
--- PASS: TestA (0.10s)
PASS
e2e: take the lab down: busy
FAIL	x/b	0.2s
`, `
==> x/a
# x/a [x/a.test]
a_test.go:1:1: undefined: b
FAIL	x/a [build failed]

==> x/b
PASS
e2e: take the lab down: busy
FAIL	x/b	0.2s

==> failed:
    x/a
    x/b
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.Command(script)
			cmd.Stdin = strings.NewReader(c.said)
			got, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, got)
			}
			if diff := cmp.Diff(c.want, string(got)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
