//go:build !race

package plan

// manyAddresses is how many addresses a large cluster has.
const manyAddresses = 10000
