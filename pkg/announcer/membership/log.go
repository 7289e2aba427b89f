package membership

import (
	"log"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"time"
)

const (
	sayAgainAfter = time.Minute // a kind of complaint that goes on
	maxComplaints = 64          // kinds that are told apart
)

// rejections begin, or contain, what memberlist logs about what it refuses and
// our door has let pass: connections of another cluster or with another key,
// and what is unreadable. It tells nobody otherwise.
func rejections() []string {
	return []string{
		"no installed keys could decrypt",
		"encryption is configured but remote state is not encrypted",
		"remote state is encrypted and encryption is not configured",
		"unsupported encryption version",
		"too small to decrypt",
		"unacceptable label",
		"cannot decode label",
		"label header",
		"Failed to decode",
		"Failed to decompress",
		"msg type (",
		"invalid msgType",
		"missing message type",
		"invalid checksum",
		"truncated messages",
		"exceeds limit",
		"larger than limit",
	}
}

// bridge takes memberlist's log lines. What it is informed of, we log in our
// own words, so that is for debugging. What it complains of it says again with
// every packet: of each kind the first is a warning, and what follows within a
// minute is counted.
type bridge struct {
	log     *slog.Logger
	refusal []string

	mu         sync.Mutex
	rejected   int
	complaints map[string]complaint
}

// complaint is a kind of line that was logged as a warning.
type complaint struct {
	last     time.Time // when it was
	repeated int       // since then
}

func newBridge(l *slog.Logger) *bridge {
	return &bridge{log: l, refusal: rejections(), complaints: map[string]complaint{}}
}

// logger returns the bridge as memberlist wants it.
func (b *bridge) logger() *log.Logger { return log.New(b, "", 0) }

// Write takes one line. It never fails.
func (b *bridge) Write(line []byte) (int, error) {
	level, text := parseLine(string(line))
	if level < slog.LevelWarn || strings.HasPrefix(text, "ignoring alive message") { // because we have refused it
		b.log.Debug("memberlist reports", "text", text)
		return len(line), nil
	}
	if repeated, say := b.complain(text, time.Now()); say {
		b.log.Warn("memberlist complains", "text", text, "repeated", repeated)
	} else {
		b.log.Debug("memberlist complains again", "text", text)
	}
	return len(line), nil
}

// complain counts a complaint. It reports whether to log it as a warning, and
// how often its kind was not since the last time.
func (b *bridge) complain(text string, now time.Time) (repeated int, say bool) {
	if b.refuses(text) {
		b.mu.Lock()
		b.rejected++
		b.mu.Unlock()
	}
	return b.again(kindOf(text), now)
}

// again reports whether to log a kind of complaint, and how often it was not
// since the last time. Beyond a number of kinds they share one.
func (b *bridge) again(kind string, now time.Time) (repeated int, say bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c, known := b.complaints[kind]
	if !known && len(b.complaints) >= maxComplaints {
		kind = ""
		c, known = b.complaints[kind]
	}
	if known && now.Sub(c.last) < sayAgainAfter {
		c.repeated++
		b.complaints[kind] = c
		return 0, false
	}
	b.complaints[kind] = complaint{last: now}
	return c.repeated, true
}

// refuses reports whether memberlist says that it has refused something. A
// connection that was closed without a word has no label either.
func (b *bridge) refuses(text string) bool {
	if strings.Contains(text, `stream with unacceptable label ""`) {
		return false
	}
	for _, r := range b.refusal {
		if strings.Contains(text, r) {
			return true
		}
	}
	return false
}

// refused logs a packet that was not let in: of each source and cause the
// first, and what follows within a minute is counted.
func (b *bridge) refused(from netip.Addr, member, cause string) {
	repeated, say := b.again("refused "+cause+" "+from.String(), time.Now())
	if say {
		b.log.Warn("refused a gossip packet", "from", from, "member", member, "because", cause, "repeated", repeated)
	}
}

// rejections returns how many packets and streams were refused.
func (b *bridge) rejections() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rejected
}

// parseLine splits a line such as "[WARN] memberlist: Refuting ...".
func parseLine(line string) (slog.Level, string) {
	level := slog.LevelInfo
	line = strings.TrimSpace(line)
	if tag, rest, ok := strings.Cut(line, "] "); ok && strings.HasPrefix(tag, "[") {
		line = rest
		switch tag {
		case "[DEBUG":
			level = slog.LevelDebug
		case "[WARN":
			level = slog.LevelWarn
		case "[ERR", "[ERROR":
			level = slog.LevelError
		}
	}
	return level, strings.TrimPrefix(line, "memberlist: ")
}

// kindOf returns a line up to the first part that may differ within its kind:
// a name, a number or what the error was.
func kindOf(text string) string {
	if i := strings.IndexAny(text, `:"'0123456789`); i >= 0 {
		return text[:i]
	}
	return text
}
