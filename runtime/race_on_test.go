//go:build race

package runtime_test

// raceEnabled: the race detector slows the arithmetic down tenfold, so tests that are about numbers only do less.
const raceEnabled = true
