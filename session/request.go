package session

import "github.com/starling-swarm/starling/node/control"

// The nouns that sessions share with a node's local interface, as package control documents them.
type (
	// Sampling says how tokens are chosen, and what is told of the choice. The zero value takes the likeliest token each time.
	Sampling = control.Sampling
	// LogitBias changes the logit of a token, or of every token of a text.
	LogitBias = control.LogitBias
	// Logprob is a token with its log-probability, by the model alone.
	Logprob = control.Logprob
	// Message is one turn of a conversation.
	Message = control.Message
	// Constraints narrow the choice of who computes, and say how everybody rounds.
	Constraints = control.Constraints
	// Event is what a node tells of a step while it runs.
	Event = control.Event
	// Model describes a session's model.
	Model = control.Model
	// Account is what a step cost, and who did what in it.
	Account = control.Account
	// Error is an error of a known kind, with what programs may want to know of it; errors.As finds it.
	Error = control.Error
)

// The kinds of errors, as package control documents them.
const (
	BadRequest   = control.BadRequest
	Busy         = control.Busy
	TooLong      = control.TooLong
	UnknownModel = control.UnknownModel
	Loading      = control.Loading
	NoRoute      = control.NoRoute
	PeerLost     = control.PeerLost
)

// Request says how [Session.Generate] goes on with a history. The zero value is the likeliest tokens, up to an end token or 256 of them.
type Request struct {
	// MaxNew is how many tokens may be made; 0: 256. It is at most what the model's context leaves.
	MaxNew int
	Sampling
	// Stop are texts that end the answer: at most 16, of 1 to 1024 bytes. The text told ends before the first that comes. The history keeps the
	// tokens that it is made of, and Account.Stop says which it was. Not with Proof.
	Stop []string
	// Fresh computes the whole history, even where a decoder has the cache of its beginning.
	Fresh bool
	// NoGuess computes every token by itself, without guesses of what follows. It changes no token.
	NoGuess bool
	// Proof accounts with hashes of logits, seams and KV.
	Proof bool
	// Timeline accounts with the times of chunks.
	Timeline bool
}
