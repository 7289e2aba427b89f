package config

import (
	"fmt"
	"net/netip"
	"strings"
)

// ConditionAllocated is the type of the condition in which a Service's status
// says whether it has its addresses, and why not. Changing it is an API change.
const ConditionAllocated = "ccm-baremetal.io/Allocated"

// ConditionAnnounced is the type of the condition that says what becomes of a
// Service's addresses. The announcers write it; where there is none,
// ccm-baremetal does, with status Unknown and the reason NoAnnouncer. Changing
// either is an API change.
const (
	ConditionAnnounced = "ccm-baremetal.io/Announced"
	NoAnnouncer        = "NoAnnouncer"
)

// The message of the condition Allocated is more than words: it consists of
// parts, and a part that begins with an address confirms that the Service was
// given this address. Announcers announce no other one, and a controller that
// starts takes no other one for given. So a status that somebody has edited
// confirms nothing. Changing the form is an API change.
const (
	partSeparator = "; "
	fromPool      = " from pool "
)

// A Confirmation is an address that a Service was given.
type Confirmation struct {
	Address netip.Addr
	Pool    string // the pool it was given from; empty: not known
	Note    string // what else there is to say of it, if anything; no part of what is read
}

// String returns for example `192.0.2.10 from pool "public", kept though pool
// "public" is disabled`.
func (c Confirmation) String() string {
	out := c.Address.String()
	if c.Pool != "" {
		out += fmt.Sprintf("%s%q", fromPool, c.Pool)
	}
	if c.Note != "" {
		out += ", " + c.Note
	}
	return out
}

// Verdict puts together a message that confirms addresses and nothing else,
// whatever the remarks are: they may quote what users have written.
func Verdict(confirmed []Confirmation, remarks ...string) string {
	parts := make([]string, 0, len(confirmed)+len(remarks))
	for _, c := range confirmed {
		parts = append(parts, onePart(c.String()))
	}
	for _, r := range remarks {
		parts = append(parts, remark(r))
	}
	return strings.Join(parts, partSeparator)
}

// WithRemark adds a remark to a message. It confirms nothing.
func WithRemark(message, text string) string {
	return message + partSeparator + remark(text)
}

// remark makes a part of a text that does not begin with an address.
func remark(text string) string {
	text = onePart(text)
	if _, confirms := confirmation(text); confirms {
		return "address " + text
	}
	return text
}

// onePart takes away from a text what separates parts.
func onePart(text string) string {
	return strings.ReplaceAll(text, partSeparator, ", ")
}

// Confirmed returns what a message confirms, in its order and without notes.
func Confirmed(message string) []Confirmation {
	var out []Confirmation
	for _, part := range VerdictParts(message) {
		if c, ok := confirmation(part); ok {
			out = append(out, c)
		}
	}
	return out
}

// VerdictParts returns the parts of a message.
func VerdictParts(message string) []string {
	return strings.Split(message, partSeparator)
}

// confirmation reads a part. A zone or an IPv4 address in the form of an IPv6
// address is never part of an address that we give.
func confirmation(part string) (Confirmation, bool) {
	text, rest, _ := strings.Cut(part, " ")
	text, noted := strings.CutSuffix(text, ",")
	address, err := netip.ParseAddr(text)
	if err != nil || address.Zone() != "" || address.Is4In6() {
		return Confirmation{}, false
	}
	c := Confirmation{Address: address}
	if quoted, ok := strings.CutPrefix(" "+rest, fromPool); ok && !noted {
		if name, ok := strings.CutPrefix(quoted, `"`); ok {
			c.Pool, _, _ = strings.Cut(name, `"`)
		}
	}
	return c, true
}
