package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Error is one fault of a document, or one warning about it.
type Error struct {
	Path    string `json:"path"` // where, in the user's own terms: pools[2] (gold).addresses[0]; empty: the whole document
	Line    int    `json:"line"` // of the document, counted from 1; 0: not known
	Message string `json:"message"`
}

// Error returns line, path and message, leaving out what is not known.
func (e Error) Error() string {
	text := e.Message
	if e.Path != "" {
		text = e.Path + ": " + text
	}
	if e.Line > 0 {
		text = fmt.Sprintf("line %d: %s", e.Line, text)
	}
	return text
}

// Errors is everything that is wrong with a document, in the order of the
// document and each fault once.
type Errors []Error

// Error returns one line for each fault.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, one := range e {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// place is where a value stands in the document.
type place struct {
	path         string
	line, column int
}

// String names the place for a message about another one.
func (p place) String() string {
	return fmt.Sprintf("%s, line %d", p.path, p.line)
}

// faults collects what is wrong with a document.
type faults struct {
	list []fault
}

// fault is an Error with what it takes to bring several into the order of the
// document.
type fault struct {
	Error
	column int
}

// fail records a fault.
func (f *faults) fail(at place, format string, args ...any) {
	f.list = append(f.list, fault{
		Error:  Error{Path: at.path, Line: at.line, Message: fmt.Sprintf(format, args...)},
		column: at.column,
	})
}

// sorted returns what was recorded, in the order of the document and each
// fault once; nil if there is none.
func (f *faults) sorted() Errors {
	slices.SortStableFunc(f.list, func(a, b fault) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.column, b.column))
	})
	var errs Errors
	seen := map[Error]bool{}
	for _, one := range f.list {
		if !seen[one.Error] {
			seen[one.Error] = true
			errs = append(errs, one.Error)
		}
	}
	return errs
}
