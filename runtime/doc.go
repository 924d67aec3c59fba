// Package runtime executes a contiguous range of the layers of a GGUF model on this machine. It knows no network.
//
// Open maps a model file and returns a Model; NewSequence reserves the KV cache of one conversation; Run pushes rows
// (tokens, or the residual stream that another machine computed) through layers and, past the last one, through the
// head. KV rows leave and enter as canonical bytes, so that a sequence can be computed partly here and partly elsewhere.
//
// # One answer
//
// Hidden states, KV rows and logits are a function of the model, the tokens and the numerics profile alone. They do not
// depend on how layers are split over machines, how rows are cut into chunks, how many sequences share a Run, how many
// threads there are, or which rows' logits are asked for. The arithmetic is package kernels'; this package adds no
// reduction of its own except the ones documented on Sample (the sums over candidate tokens). Everything else here is
// element-wise or says in which order it calls the kernels: see forward.go, layer.go (forwardLayer), gqa.go,
// mla.go, delta.go, ffn.go, experts.go and attention.go.
//
// # Nouns
//
//   - Backend, Executor, Sequence, Step: the boundary that callers see (backend.go). Model is the Go engine behind it,
//     runtimetest.Fake an arithmetic toy with the same contract.
//   - Range: half-open layer numbers [First, Last). People see them inclusive: "layers 0–9 (10)".
//   - family: one architecture of models. arch_*.go have one each: header, tensors, and the parts of its layers.
//   - mixer: the half of a layer in which a position hears of earlier ones (layer.go). What it keeps of them is cache rows, or
//     a tail: numbers that every position changes (tail.go), of which snapshots are kept (snapshot.go).
//   - Profile: what must be equal on two machines before their numbers may be mixed.
package runtime
