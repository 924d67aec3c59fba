// Package session is Starling's API for programs: a conversation with a model that a swarm runs, token by token. It is what the
// command, a gateway and tests use.
//
// A [Session] is a history of tokens and a client's connection to a node, the daemon of a data folder or one in this process:
//
//	client, err := control.Dial(ctx, dataFolder) // or control.InProcess(n.Control())
//	s, err := session.Open(ctx, client, session.Options{Model: "SmolLM2"})
//	err = s.AppendText(ctx, "The capital of France is")
//	for token, err := range s.Generate(ctx, session.Request{MaxNew: 8}) { … }
//	rows, err := s.Hidden(ctx, []int{0, 12}, 0, s.Len())
//
// The history is all there is: [Session.Rewind] cuts it, [Session.Fork] copies it, and neither asks anybody. Every step names the
// whole history to the swarm, whose decoder keeps the caches of what this client has asked before and computes what is new. So a
// step costs what it adds, wherever it goes on from, as far as the caches are still there; where they aren't, it takes longer and
// gives the same bits. A history of fewer than 32 tokens is not worth keeping. A model whose layers keep tails can go
// back only to where a step began or ended and to a few page ends (runtime.Snapshots), one with windows only to where a step began or
// ended and within the latest pages.
//
// Numbers are exact: hidden states and logits are bit for bit those of one process that runs the whole model (docs/numerics.md),
// whatever the route and however the history came about.
//
// A Session's methods may be called from any goroutine. One step runs at a time: a second one, and what would change the history under
// it, gets [ErrRunning]. Sessions of one client may run at once. Nothing needs to be freed in the swarm.
package session
