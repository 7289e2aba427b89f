// Package bgp advertises addresses to routers. It speaks BGP-4 (RFC 4271) on
// its own, with the messages of github.com/osrg/gobgp: a session for each peer,
// on which it announces what it is told to and nothing else. It opens no port,
// and it takes no route from anybody: what routers offer is counted and dropped
// before it is even parsed, so a router that offers the whole Internet costs
// nothing.
//
// Every session has a goroutine, a socket and a table of its own. One that
// hangs holds up no other, and never the caller.
package bgp
