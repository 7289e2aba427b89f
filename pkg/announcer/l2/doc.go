// Package l2 is the layer 2 speaker: it makes the neighbours of this node
// believe that addresses which no interface of the node has are to be found at
// its links. It answers ARP requests and neighbour solicitations, announces
// what it takes over, hands over what it loses without a gap, and notices
// others that claim the same addresses.
//
// It touches raw sockets and nothing else. What it wants to know of a link
// comes with each plan.Announcement, so it needs the capability NET_RAW and
// leaves nothing behind, on whatever way it ends.
//
// One goroutine, the loop, owns all state. Each packet socket has a reader that
// looks addresses up in an immutable table and answers by itself; the loop
// replaces the tables and sends what is sent unasked. Everything that a frame
// can mean is decided by pure functions of the frame and the table.
package l2
