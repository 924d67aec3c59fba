// Package node is the composition root: the only package that sees the swarm,
// the artifacts, the planner and the runtime together.
//
// A Node is one daemon (or an ephemeral client in the command's own process).
// It plays any of three parts in a session, and one node may play several:
//
//	client    plans, signs the grant, opens the session on the decoder, keeps
//	          tokens and settings so that it can start over elsewhere
//	decoder   drives the session: plan epochs, chunks, KV import, sampling
//	stage     runs layers [first, last) on chunks, forwards seams, pushes KV
//
// The sessions of decoder and stage are state machines without I/O or clock
// (decoding.go, staging.go): a frame or a finished computation goes in, actions
// come out. Thin drivers (decoder.go, stage.go) perform the actions; batching.go
// computes the steps of all sessions of a model in common rounds (rounds.go says
// which); links.go carries frames between peers and tells when one is gone.
package node
