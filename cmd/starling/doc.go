// Command starling is a peer-to-peer node that runs large language models across a swarm of volunteers.
//
// Each verb is one file, cmd_VERB.go, that turns flags into a request of package control and prints the answer. Verbs
// talk to the daemon that owns the data folder, or to a node of their own in the same process (connect.go), through the
// same interface. cli.go is the grammar, config.go where settings come from, demo_*.go the demonstration that strings
// real processes together, and reference.go the single-process run that swarms are compared with.
package main
