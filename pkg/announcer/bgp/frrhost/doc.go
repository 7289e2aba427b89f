// Package frrhost advertises addresses to routers by an FRR beside the
// announcer or on its host. It writes FRR's configuration file into a directory
// that both share, and what runs beside FRR (manifests/bgp-frr/reload.py)
// reloads FRR, asks it what it has, and puts that into the same directory.
//
// Everything goes through files that are replaced as a whole, so an FRR that
// is slow, broken or away holds nothing up: it is in the state of its sessions.
package frrhost
