package main

import (
	"os"
	"runtime/debug"
)

// gcPercent is how much garbage there may be before it is collected, in
// percent of what is in use. Go's own figure is 100.
const gcPercent = 35

// frugal trades CPU time, of which an announcer needs little, for memory,
// which every node pays for. Who sets the environment variable GOGC decides
// otherwise.
func frugal() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}
