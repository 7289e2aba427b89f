// Package frrcluster advertises addresses to routers by an frr-k8s that the
// cluster has. It keeps one FRRConfiguration for its node as it should be, and
// follows what frr-k8s tells of the node's FRR and of its sessions. FRR goes on
// with what it has whether the announcer lives or not.
//
// All of it goes through the API server, which may be slow or away, and the API
// of frr-k8s may be missing: that is in the state of the sessions, and holds
// nothing else up.
package frrcluster
