package bgp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// Sizes of a message (RFC 4271, section 4.1).
const (
	headerSize  = 19
	mostMessage = 4096
)

// message is one message as it came: its type, and its body unread.
type message struct {
	kind uint8
	body []byte
}

// fault is what we end a session for. The router is told.
type fault struct {
	code, subcode uint8
	data          []byte
	text          string
}

func (f *fault) Error() string { return f.text }

// unexpected is a message of a type that has no place in a state of the session
// (RFC 6608).
func unexpected(subcode, kind uint8, when string) error {
	return &fault{bgp.BGP_ERROR_FSM_ERROR, subcode, []byte{kind}, fmt.Sprintf("the router sends a message of type %d %s", kind, when)}
}

// readMessage reads one message. An error that is a *fault is the router's.
func readMessage(r io.Reader, buffer []byte) (message, error) {
	if _, err := io.ReadFull(r, buffer[:headerSize]); err != nil {
		return message{}, err
	}
	size, err := judgeHeader(buffer[:headerSize])
	if err != nil {
		return message{}, err
	}
	body := buffer[headerSize:size]
	if _, err := io.ReadFull(r, body); err != nil {
		return message{}, err
	}
	return message{buffer[18], body}, nil
}

// least is how long a message of each type is at least (RFC 4271, section 6.1,
// and RFC 2918). A NOTIFICATION may be too short: nothing can be said of its
// faults (section 6.4).
var least = map[uint8]int{
	bgp.BGP_MSG_OPEN: 29, bgp.BGP_MSG_UPDATE: 23, bgp.BGP_MSG_NOTIFICATION: headerSize, bgp.BGP_MSG_KEEPALIVE: headerSize,
	bgp.BGP_MSG_ROUTE_REFRESH: 23,
}

// judgeHeader returns the size of the message that a header belongs to, or a
// *fault (RFC 4271, section 6.1).
func judgeHeader(header []byte) (int, error) {
	refuse := func(subcode uint8, data []byte, format string, args ...any) (int, error) {
		return 0, &fault{bgp.BGP_ERROR_MESSAGE_HEADER_ERROR, subcode, slices.Clone(data), fmt.Sprintf(format, args...)}
	}
	size, kind := int(binary.BigEndian.Uint16(header[16:])), header[18]
	shortest, known := least[kind]
	switch {
	case slices.ContainsFunc(header[:16], func(b byte) bool { return b != 0xff }):
		return refuse(bgp.BGP_ERROR_SUB_CONNECTION_NOT_SYNCHRONIZED, nil, "the router sends what is no BGP")
	case size < headerSize || size > mostMessage:
		return refuse(bgp.BGP_ERROR_SUB_BAD_MESSAGE_LENGTH, header[16:18], "the router sends a message of %d bytes", size)
	case !known:
		return refuse(bgp.BGP_ERROR_SUB_BAD_MESSAGE_TYPE, header[18:], "the router sends a message of the unknown type %d", kind)
	case size < shortest, kind == bgp.BGP_MSG_KEEPALIVE && size > shortest:
		return refuse(bgp.BGP_ERROR_SUB_BAD_MESSAGE_LENGTH, header[16:18], "the router sends a message of type %d with %d bytes", kind, size)
	}
	return size, nil
}

// notified is a NOTIFICATION of the router.
func notified(body []byte) error {
	if len(body) < 2 {
		return errors.New("the router has closed the session")
	}
	text := notifications[[2]uint8{body[0], body[1]}]
	if text == "" {
		text = bgp.NewNotificationErrorCode(body[0], body[1]).String()
	}
	return fmt.Errorf("the router has closed the session: %s%s", text, inWords(body))
}

// inWords returns what the people of a router have to say about a shutdown or a
// reset (RFC 9003), fit for a log.
func inWords(body []byte) string {
	told := body[0] == bgp.BGP_ERROR_CEASE && (body[1] == bgp.BGP_ERROR_SUB_ADMINISTRATIVE_SHUTDOWN || body[1] == bgp.BGP_ERROR_SUB_ADMINISTRATIVE_RESET)
	if !told || len(body) < 3 || body[2] == 0 || len(body) < 3+int(body[2]) {
		return ""
	}
	return fmt.Sprintf(", with the words %q", body[3:3+int(body[2])])
}

// notifications are the reasons of routers that need no manual, by code and
// subcode.
var notifications = map[[2]uint8]string{
	{bgp.BGP_ERROR_OPEN_MESSAGE_ERROR, bgp.BGP_ERROR_SUB_BAD_PEER_AS}:                         "it expects another AS number of us",
	{bgp.BGP_ERROR_OPEN_MESSAGE_ERROR, bgp.BGP_ERROR_SUB_BAD_BGP_IDENTIFIER}:                  "Bad BGP Identifier, it knows another session with our router ID, or has it itself",
	{bgp.BGP_ERROR_OPEN_MESSAGE_ERROR, bgp.BGP_ERROR_SUB_UNSUPPORTED_OPTIONAL_PARAMETER}:      "it knows no capabilities (RFC 5492), without which there is no session",
	{bgp.BGP_ERROR_OPEN_MESSAGE_ERROR, bgp.BGP_ERROR_SUB_UNACCEPTABLE_HOLD_TIME}:              "it does not accept our hold time",
	{bgp.BGP_ERROR_HOLD_TIMER_EXPIRED, 0}:                                                     "it has not heard of us for the hold time",
	{bgp.BGP_ERROR_CEASE, bgp.BGP_ERROR_SUB_ADMINISTRATIVE_SHUTDOWN}:                          "it has been told to shut it down",
	{bgp.BGP_ERROR_CEASE, bgp.BGP_ERROR_SUB_ADMINISTRATIVE_RESET}:                             "it has been told to reset it",
	{bgp.BGP_ERROR_CEASE, bgp.BGP_ERROR_SUB_PEER_DECONFIGURED}:                                "it does not know us any more",
	{bgp.BGP_ERROR_CEASE, bgp.BGP_ERROR_SUB_CONNECTION_REJECTED}:                              "it has rejected the connection",
	{bgp.BGP_ERROR_CEASE, bgp.BGP_ERROR_SUB_OTHER_CONFIGURATION_CHANGE}:                       "its configuration has changed",
	{bgp.BGP_ERROR_CEASE, bgp.BGP_ERROR_SUB_CONNECTION_COLLISION_RESOLUTION}:                  "it has another connection with us",
	{bgp.BGP_ERROR_CEASE, bgp.BGP_ERROR_SUB_MAXIMUM_NUMBER_OF_PREFIXES_REACHED}:               "it takes no more prefixes",
	{bgp.BGP_ERROR_FSM_ERROR, bgp.BGP_ERROR_SUB_RECEIVE_UNEXPECTED_MESSAGE_IN_OPENSENT_STATE}: "it did not expect our message",
}
