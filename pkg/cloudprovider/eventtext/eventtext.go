// Package eventtext fits texts into the messages of events.
package eventtext

import "strings"

// most is how many bytes the API server takes.
const most = 1024

// Limit cuts a text to what the message of an event may have.
func Limit(text string) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-3], "") + "..."
}

// Line is Limit of a text made one line: kubectl shows no more.
func Line(text string) string { return Limit(strings.ReplaceAll(text, "\n", "; ")) }
