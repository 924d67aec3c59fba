// Package meta holds the repository's own rules as tests: who may import whom and why, package comments, formatting,
// file sizes, forbidden functions, the list of dependencies, and what no committed file may contain.
//
// Each rule is a function from a file tree to findings, run once over the repository and once over a small tree that breaks it.
// A rule says nothing about folders that don't exist.
package meta
