package version

import (
	"runtime/debug"
	"testing"
)

func TestVersionNamesReleaseAndCommit(t *testing.T) {
	built := func(module, revision, modified string) *debug.BuildInfo {
		return &debug.BuildInfo{
			Main: debug.Module{Version: module},
			Settings: []debug.BuildSetting{
				{Key: "CGO_ENABLED", Value: "0"}, {Key: "vcs.revision", Value: revision}, {Key: "vcs.modified", Value: modified},
			},
		}
	}
	for _, c := range []struct {
		release, commit string
		info            *debug.BuildInfo
		want            string
	}{
		{"v0.1.0", "0123abcd", &debug.BuildInfo{}, "v0.1.0 (commit 0123abcd)"},
		{"v0.1.0", "0123abcd-dirty", &debug.BuildInfo{}, "v0.1.0 (commit 0123abcd, dirty)"},
		{"v0.1.0", "4567cdef", built("v0.1.0+dirty", "0123abcd", "true"), "v0.1.0 (commit 4567cdef)"},
		{"v0.1.0-dirty", "", built("v0.1.0+dirty", "0123abcd", "true"), "v0.1.0-dirty (commit 0123abcd, dirty)"},
		{"", "", built("v0.0.0-20260102030405-0123abcd", "0123abcd", "false"), "v0.0.0-20260102030405-0123abcd (commit 0123abcd)"},
		{"", "", &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, "(devel) (commit unknown)"},
		{"v0.1.0", "", &debug.BuildInfo{}, "v0.1.0 (commit unknown)"},
		{"", "", &debug.BuildInfo{}, "unknown (commit unknown)"},
	} {
		if got := describe(c.release, c.commit, c.info); got != c.want {
			t.Errorf("%q, %q, %v: %q, want %q", c.release, c.commit, c.info.Main, got, c.want)
		}
	}
}
