// Package service gives Services of type LoadBalancer their addresses: one
// pass per Service computes what its status is to hold, and one patch writes
// that, if it differs from what is there. Nothing else of a Service is ever
// written, and an unchanged world is never written at all.
//
// Decisions are made one after the other by a single goroutine, so that they
// have an order and waiting Services are served oldest first; only the writes
// run concurrently. The Balancer is the one place where decisions come from,
// for our controller as for upstream's.
package service
