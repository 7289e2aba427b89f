//go:build race

package replay

// thorough replays every seed for every node. The race detector makes that
// slow; with it each seed has one bad node, and each node five seeds.
const thorough = false
