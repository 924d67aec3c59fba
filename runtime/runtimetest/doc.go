// Package runtimetest helps to test what is built on package runtime: Fake is a Backend that computes integers instead
// of a model, and TestExecutor is the contract of an Executor as a test, which every backend passes.
package runtimetest
