// Package control is the local interface of a node: JSON over HTTP on a Unix
// socket in the data folder. The command's verbs speak it, to the daemon that
// owns the folder or, when none runs, to an ephemeral node in their own
// process, so both go through the same code.
//
// Long work (model, publish, pull, serve, run) answers with a stream of Events, one
// JSON object a line, that ends with one of kind "done" or "error". Closing the
// request cancels the work.
package control
