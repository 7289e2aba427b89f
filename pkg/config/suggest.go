package config

import (
	"slices"
	"strings"
)

// borrowed are keys of other products, squashed, with ours for the same thing.
var borrowed = map[string]string{
	"addresspools":       "pools",
	"blocks":             "addresses",
	"cidr":               "addresses",
	"cidrs":              "addresses",
	"class":              "loadBalancerClass",
	"conflict":           "conflictDetection",
	"disabled":           "state",
	"interface":          "interfaces",
	"ipaddresspools":     "pools",
	"iprange":            "addresses",
	"ips":                "addresses",
	"l2":                 "layer2",
	"l2advertisements":   "advertisements",
	"namespaceselectors": "namespaceSelector",
	"nodeselectors":      "nodeSelector",
	"range":              "addresses",
	"ranges":             "addresses",
	"serviceselectors":   "serviceSelector",
	"servicenamespaces":  "namespaces",
}

// squash leaves of a name what people remember of it.
func squash(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || r == ' ' {
			return -1
		}
		return r
	}, strings.ToLower(name))
}

// Suggest returns the one of known that was most likely meant by name, "" if
// none is near.
func Suggest(name string, known []string) string {
	squashed := squash(shorten(name))
	if ours := borrowed[squashed]; slices.Contains(known, ours) {
		return ours
	}
	best, least := "", 3
	for _, candidate := range known {
		d := distance(squashed, squash(candidate))
		if d < least && 2*d < len(candidate) {
			best, least = candidate, d
		}
	}
	return best
}

// distance counts the insertions, deletions and replacements that turn a into
// b (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
