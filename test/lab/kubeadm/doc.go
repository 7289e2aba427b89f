// Package kubeadm holds the example files of manifests/kubeadm to kubeadm's own
// validation. It is in this module because kubeadm is a part of Kubernetes,
// which no other module of ours requires.
package kubeadm
