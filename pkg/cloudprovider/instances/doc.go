// Package instances tells the framework about the machines behind Nodes: it
// implements InstancesV2 in memory, keeps labels of Nodes in step after the
// framework has set them once, and follows the BareMetalHosts of a management
// cluster.
//
// Decisions are made in package decide; here is what it takes to ask them and
// to act on them. Unknown is an error, never an answer.
package instances
