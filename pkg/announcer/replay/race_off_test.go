//go:build !race

package replay

const thorough = true
