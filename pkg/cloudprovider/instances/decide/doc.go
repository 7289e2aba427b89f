// Package decide holds what is decided about Nodes and their machines, as
// functions of values: whether a machine exists, is off or is gone, which
// addresses and labels its Node has, and when a Node may be deleted.
//
// What is not known for certain keeps the Node: only a verdict of Gone, seen
// again and again, ever leads to a deletion.
package decide
