package control

import "github.com/starling-swarm/starling/route"

// Constraints narrow the choice of a plan.
type Constraints struct {
	Shape    string            `json:"shape,omitempty"`    // "local", "across", "pipelined", or any
	Cuts     []int             `json:"cuts,omitempty"`     // forced cut positions
	Assign   []string          `json:"assign,omitempty"`   // forced peers of the stages
	Decoder  string            `json:"decoder,omitempty"`  // peer ID
	Decode   string            `json:"decode,omitempty"`   // "here" or "any"
	Draft    string            `json:"draft,omitempty"`    // model that is to guess ahead where the answer is decoded, named like a model; it changes no token
	Chunk    int               `json:"chunk,omitempty"`    // tokens per chunk, 0: the planner's choice
	Excluded map[string]string `json:"excluded,omitempty"` // peer → why
	Only     []string          `json:"only,omitempty"`     // no other peers; empty: all that Trust lets in

	// Trust says who may see anything of the prompt beside this node: "any", also where empty, everybody in the swarm; "members" of a
	// private swarm; "listed", those that the user lists as trusted.
	Trust string `json:"trust,omitempty"`

	// How everybody rounds, which changes the numbers, and so perhaps the answer (docs/numerics.md, section 11).
	KV string `json:"kv,omitempty"` // cache rows: "f16", also where empty, or "q8_0"; "auto": as for seams
	// Seam is the type of the residual stream between peers: "f32", also where empty, "f16", "bf16", "q8_0", rounded where the
	// plan cuts, or where the type names layers: "q8_0@10,20"; "auto": the finest with which the plan is hardly slower than with any.
	Seam string `json:"seam,omitempty"`
}

// PlanRequest asks for a placement preview.
type PlanRequest struct {
	Model        string `json:"model"`
	PromptTokens int    `json:"prompt_tokens"`
	NewTokens    int    `json:"new_tokens"`
	Text         string `json:"text,omitempty"` // measure with this what the rounding of the plan changes; "": with a text of ours
	// WhatIf are machines to plan with beside the swarm's, as route.ParseMachine reads them.
	WhatIf []string `json:"what_if,omitempty"`
	Constraints
}

// PlanReply is a plan with the words that explain it.
type PlanReply struct {
	Model   string     `json:"model"`
	Plan    route.Plan `json:"plan"`
	Explain string     `json:"explain"`
	Sees    []Sight    `json:"sees"`
	Effect  *Effect    `json:"effect,omitempty"` // of the rounding that was asked for, where the plan has any; not of a run
	WhatIf  *WhatIf    `json:"what_if,omitempty"`
	NoPlan  string     `json:"no_plan,omitempty"` // why there is no plan but with the machines of WhatIf
}

// WhatIf is what there would be with machines that the swarm doesn't have.
type WhatIf struct {
	Machines []Addition `json:"machines"`
	Plan     route.Plan `json:"plan"`
	Explain  string     `json:"explain"` // the difference first
}

// Addition is a machine, the name that the plan has for it, and the layers that it would best hold.
type Addition struct {
	Peer    string        `json:"peer"`
	Machine route.Machine `json:"machine"`
	Layers  Layers        `json:"layers"`
}

// Sight is what a peer of a plan sees of the prompt. From any of it the prompt can be recovered, wholly or nearly so.
type Sight struct {
	Peer string `json:"peer"`
	Self bool   `json:"self"` // the asked node
	What string `json:"what"` // such as "token IDs, hidden states and KV of layers 0–9 (10)"
}

// Effect says what the rounding of a plan saves and what it changes, against the same plan with KV in f16 and seams in f32.
type Effect struct {
	Links           []LinkBytes `json:"links"`
	FirstToken      float64     `json:"first_token_seconds"` // predicted
	FirstTokenPlain float64     `json:"first_token_seconds_plain"`

	NotMeasured string  `json:"not_measured,omitempty"` // why the rest isn't there
	Where       string  `json:"where,omitempty"`        // it was measured
	Positions   int     `json:"positions,omitempty"`
	Largest     float64 `json:"largest_difference"` // of logits
	KL          float64 `json:"kl_divergence"`      // nats, the mean over positions
	Top1        int     `json:"top1_equal"`         // positions at which the most likely token is the same
}

// LinkBytes is what a token takes on the way from one stage: its seam to the next peer, and its KV rows to the decoder.
type LinkBytes struct {
	From      string `json:"from"`
	To        string `json:"to"`
	Seam      int    `json:"seam_bytes"`
	SeamPlain int    `json:"seam_bytes_plain"`
	KV        int    `json:"kv_bytes"`
	KVPlain   int    `json:"kv_bytes_plain"`
}
