package membership

import (
	"encoding/binary"
	"errors"
	"unicode/utf8"
)

// formatVersion is the first byte of everything that we send. What only adds
// fields keeps it: readers ignore what follows the fields that they know. It
// rises when old readers would misunderstand, and then a release still writes
// the version before.
const formatVersion = 1

// errGarbled says that bytes from a peer cannot be read or exceed a bound.
var errGarbled = errors.New("unreadable or out of bounds")

// reader takes values off the front of a buffer. After the first fault every
// value is zero and bad is set.
type reader struct {
	buf []byte
	bad bool
}

// take returns the next n bytes, which stay part of the buffer.
func (r *reader) take(n int) []byte {
	if r.bad || n < 0 || n > len(r.buf) {
		r.bad = true
		return nil
	}
	b := r.buf[:n:n]
	r.buf = r.buf[n:]
	return b
}

func (r *reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uint64() uint64 {
	if b := r.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.buf)
	if n <= 0 {
		r.bad = true
	}
	if r.take(n); r.bad {
		return 0
	}
	return v
}

// number returns a uvarint of at most the given value.
func (r *reader) number(most int) int {
	v := r.uvarint()
	if v > uint64(most) {
		r.bad = true
		return 0
	}
	return int(v)
}

// chunk returns bytes that are preceded by their length.
func (r *reader) chunk(most int) []byte { return r.take(r.number(most)) }

// text returns a string that is preceded by its length.
func (r *reader) text(most int) string {
	b := r.chunk(most)
	if !utf8.Valid(b) {
		r.bad = true
		return ""
	}
	return string(b)
}

// version takes the format version, which must be ours.
func (r *reader) version() {
	if r.byte() != formatVersion {
		r.bad = true
	}
}

// err returns errGarbled if anything was wrong.
func (r *reader) err() error {
	if r.bad {
		return errGarbled
	}
	return nil
}

// appendChunk appends bytes and before them their length.
func appendChunk[T string | []byte](b []byte, chunk T) []byte {
	b = binary.AppendUvarint(b, uint64(len(chunk)))
	return append(b, chunk...)
}

// flag returns the bit if it is to be set.
func flag(set bool, bit byte) byte {
	if set {
		return bit
	}
	return 0
}
