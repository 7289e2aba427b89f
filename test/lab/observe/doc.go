// Package observe watches from outside, as a client in the LAN does, who
// answers for an address and whether packets arrive.
//
// A Watcher asks for addresses by ARP and Neighbor Solicitation at a fixed pace
// and records each answer with the time at which the kernel received it, so
// that a busy machine shifts no result. Every question has a sender address of
// its own, which the answer repeats: so it is known for each single question
// whether it was answered, by whom, and after how long.
//
// An Echo sends numbered datagrams and counts those that come back; a Series
// repeats any other attempt, as a new connection.
package observe
