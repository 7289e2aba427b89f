// Package version says which release a program is, and which source it was
// made of.
package version

import (
	"cmp"
	"runtime/debug"
	"strings"
)

// The linker sets these (-X); both are empty in programs of a plain go build.
var (
	release string // what the build calls itself, such as v0.1.0
	commit  string // of the source, in full; with "-dirty" at the end if it was not quite that
)

// String names the release and the commit of the running program, such as
// "v0.1.0 (commit 0123abcd, dirty)". Dirty says that the source was not quite
// that commit.
func String() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return describe(release, commit, info)
}

// describe says what String does. What the linker was not told is as Go itself
// has noted it, which it does in a clone of the repository, but in no worktree.
func describe(release, commit string, info *debug.BuildInfo) string {
	commit, dirty := strings.CutSuffix(commit, "-dirty")
	if commit == "" {
		commit, dirty = setting(info, "vcs.revision"), setting(info, "vcs.modified") == "true"
	}
	text := cmp.Or(release, info.Main.Version, "unknown") + " (commit " + cmp.Or(commit, "unknown")
	if dirty {
		text += ", dirty"
	}
	return text + ")"
}

// setting returns what the go command noted under a key; "" if nothing.
func setting(info *debug.BuildInfo, key string) string {
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}
