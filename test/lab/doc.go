// Package lab runs a real Kubernetes cluster on one machine, without container
// engine and images: etcd, kube-apiserver, kube-controller-manager and a
// kube-proxy per node, as processes in network namespaces. What is faked is
// the kubelet: Nodes and Pods are objects that the lab writes, and behind each
// Pod a process listens on its address.
//
//	                 sw: the switch, a bridge
//	┌─────────┬─────────┬───┴─────┬─────────┬─────────┐
//	cp        r1        c1        n1        n2   ...  nN     one namespace each,
//	.5        .1        .200      .11       .12              its link is eth0
//	etcd      (router)  (client)  kube-proxy
//	apiserver                     pods 10.244.1.0/24, fd00:244:0:1::/64
//	controller-manager
//
// All hosts are in one LAN, 198.51.100.0/24 and 2001:db8:51::/64; the last
// part of an address is the same in both families. r1 is everybody's default
// route. Addresses .100 to .199 are free for pools, and .201 to .254 are the
// senders of the questions that Watch asks.
//
// Outside of its namespaces a lab has only one directory below StateDir. Down
// removes both and ends what was started, also when the program that called Up
// is dead; Up begins by doing that for what it finds of an earlier lab of the
// same name.
package lab
