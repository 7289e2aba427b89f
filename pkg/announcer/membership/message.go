package membership

import (
	"encoding/binary"
)

// kind says what a direct message is. Changing a value is a change of the format.
type kind byte

// The kinds of message. A reader ignores the ones that it does not know.
const (
	kindState    kind = 1 // a member's name and metadata
	kindTable    kind = 2 // a table of links
	kindAsk      kind = 3 // the name of a member that wants the receiver's table
	kindReturned kind = 4 // the life of a member that was taken for dead and lives, and its counter then
)

// message is what one member sends to another directly. Only the fields of
// its kind are set.
type message struct {
	kind  kind
	name  string
	state metadata
	table table
	life  uint64

	// The first release told no counter with a life.
	counted bool
	counter uint64
}

func (m message) encode() []byte {
	b := []byte{formatVersion, byte(m.kind)}
	switch m.kind {
	case kindState:
		b = appendChunk(b, m.name)
		b = appendChunk(b, m.state.encode())
	case kindTable:
		b = append(b, m.table.encoded...)
	case kindAsk:
		b = appendChunk(b, m.name)
	case kindReturned:
		b = binary.BigEndian.AppendUint64(b, m.life)
		if m.counted {
			b = binary.AppendUvarint(b, m.counter)
		}
	}
	return b
}

// decodeMessage reads what encode wrote, and later versions of it. A table in
// it refers to the buffer.
func decodeMessage(b []byte) (message, error) {
	r := reader{buf: b}
	r.version()
	m := message{kind: kind(r.byte())}
	var err error
	switch m.kind {
	case kindState:
		m.name = r.text(maxName)
		m.state, err = decodeMetadata(r.chunk(maxTable))
	case kindTable:
		m.table, err = decodeTable(r.buf)
	case kindAsk:
		m.name = r.text(maxName)
	case kindReturned:
		m.life = r.uint64()
		if len(r.buf) > 0 {
			m.counted, m.counter = true, r.uvarint()
		}
	}
	if r.bad || err != nil {
		return message{}, errGarbled
	}
	return m, nil
}

// encodeState joins tables to what a full exchange carries.
func encodeState(tables []table) []byte {
	b := []byte{formatVersion}
	b = binary.AppendUvarint(b, uint64(len(tables)))
	for _, t := range tables {
		b = appendChunk(b, t.encoded)
	}
	return b
}

// decodeState returns the tables that can be read, and an error if some cannot.
func decodeState(b []byte) ([]table, error) {
	r := reader{buf: b}
	r.version()
	var tables []table
	var fault error
	for range r.number(maxMembers) {
		chunk := r.chunk(maxTable)
		if r.bad {
			break
		}
		t, err := decodeTable(chunk)
		if err != nil {
			fault = err
			continue
		}
		tables = append(tables, t)
	}
	if err := r.err(); err != nil {
		return tables, err
	}
	return tables, fault
}
