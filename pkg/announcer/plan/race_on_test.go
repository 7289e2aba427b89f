//go:build race

package plan

// manyAddresses is how many addresses a large cluster has: fewer, because the
// race detector makes everything many times slower.
const manyAddresses = 1000
