//go:build race

package ipam

// slowdown is what the race detector costs at most.
const slowdown = 20
