package lab

import (
	"fmt"
	"strings"
	"testing"
)

func TestOptions(t *testing.T) {
	for _, test := range []struct {
		name  string
		nodes int
		want  string // part of the error; empty for none
	}{
		{"lab", 1, ""},
		{"a-b-1", MaxNodes, ""},
		{"../x", 1, "lab name"},
		{"-x", 1, "lab name"},
		{"Upper", 1, "lab name"},
		{strings.Repeat("x", 33), 1, "lab name"},
		{"x", MaxNodes + 1, "nodes"},
		{"x", -1, "nodes"},
	} {
		err := Options{Name: test.name, Nodes: test.nodes}.check()
		if got := fmt.Sprint(err); (err == nil) != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("name %q, %d nodes: %v, want %q", test.name, test.nodes, err, test.want)
		}
	}
}

// TestHostsDiffer plans the largest lab: no two hosts share anything, and
// nobody has an address that is kept free for pools or for Watch.
func TestHostsDiffer(t *testing.T) {
	taken := map[string]string{}
	v4, v6 := askers()
	for _, a := range append(v4, v6...) {
		taken[a.String()] = "Watch"
	}
	for i := 100; i < 200; i++ {
		taken[fmt.Sprintf("198.51.100.%d", i)] = "pools"
	}
	for _, h := range planHosts("x", MaxNodes) {
		for _, part := range []string{h.Name, h.Namespace, h.MAC, h.IPv4.String(), h.IPv6.String(), h.PodsV4.String() + "pods", h.PodsV6.String() + "pods", h.port()} {
			if other, ok := taken[part]; ok && !strings.HasPrefix(part, "invalid") {
				t.Errorf("%s of %s is taken by %s", part, h.Name, other)
			}
			taken[part] = h.Name
		}
		if !LANv4.Contains(h.IPv4) || !LANv6.Contains(h.IPv6) {
			t.Errorf("%s is not in the LAN", h.Name)
		}
	}
}

func TestTail(t *testing.T) {
	for _, test := range []struct {
		text  string
		lines int
		want  string
	}{
		{"a\nb\nc\n", 2, "b\nc"},
		{"a", 5, "a"},
		{"", 5, ""},
	} {
		if got := tail(test.text, test.lines); got != test.want {
			t.Errorf("tail(%q, %d) = %q, want %q", test.text, test.lines, got, test.want)
		}
	}
}
