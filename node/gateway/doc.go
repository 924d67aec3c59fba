// Package gateway is HTTP for tools that already speak an API: it answers requests in the form of OpenAI's with what a swarm
// computes, over the same sessions as the command line.
//
//	request ── request.go ──▶ session ── chat.go, completions.go ──▶ reply, whole or as server-sent events (stream.go)
//
// # What is the same as there, and what is not
//
// GET /v1/models and /v1/models/{model}, POST /v1/chat/completions, /v1/completions and /v1/embeddings; errors have OpenAI's shape, the status says what
// to do, and param names the field. Fields that would change an answer and aren't supported are refused by name, never passed over;
// fields that change nothing (user, metadata, store) are. Without max_tokens an answer has at most [DefaultMaxNew] tokens. Without a seed
// each request gets one of its own; with one, or at temperature 0, the same request gives the same bytes, streamed or not, whoever
// computes it. Further fields are llama.cpp's: top_k, min_p, typical_p, repeat_penalty, repeat_last_n.
//
// The header Starling-Peers says who computed the answer: the decoder first, then the stages along the route, as planned.
//
// # Who may ask
//
// Without keys, only programs of this machine: what is asked through another name than the machine's own, as web pages do that have
// their name point here, is refused, and so is a body that isn't declared to be JSON, which is all that a page may send without being
// asked for leave first. With keys, whoever shows one. Neither prompts nor keys get into a log.
package gateway
