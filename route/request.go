package route

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Shape is how prefill and decoding are laid over the peers. The zero value leaves the choice to the planner.
type Shape uint8

// The shapes; the package comment describes them.
const (
	Any Shape = iota
	Local
	Across
	Pipelined
)

var shapeNames = []string{"any", "local", "across", "pipelined"}

// String returns the lower-case name.
func (s Shape) String() string {
	if int(s) < len(shapeNames) {
		return shapeNames[s]
	}
	return fmt.Sprintf("Shape(%d)", uint8(s))
}

// ParseShape is the inverse of [Shape.String]; the empty string is [Any].
func ParseShape(name string) (Shape, error) {
	if name == "" {
		return Any, nil
	}
	if i := slices.Index(shapeNames, name); i >= 0 {
		return Shape(i), nil
	}
	return Any, fmt.Errorf("route: no shape %q: use any, local, across or pipelined", name)
}

// MarshalText makes the name the JSON form.
func (s Shape) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText parses a name.
func (s *Shape) UnmarshalText(b []byte) (err error) {
	*s, err = ParseShape(string(b))
	return err
}

// Request is one prompt and what its owner insists on.
type Request struct {
	PromptTokens int `json:"prompt_tokens"` // at least 1
	NewTokens    int `json:"new_tokens"`    // 0 prefills only
	// Chunk is the tokens that travel together; 0 leaves the choice to the planner. Longer than the prompt
	// means the whole prompt.
	Chunk int `json:"chunk,omitempty"`
	// Shape forces a shape.
	Shape Shape `json:"shape,omitempty"`
	// Cuts forces where the ranges end: k cuts make k remote stages and the decoder's range after them. The last
	// cut may be Model.Layers: then the decoder runs no layers in prefill.
	Cuts []int `json:"cuts,omitempty"`
	// Assign forces the peers of the ranges, in layer order, the decoder's range last; "" leaves one to the
	// planner. With Cuts it may be shorter than the ranges; without, its length is the number of ranges.
	Assign []string `json:"assign,omitempty"`
	// Decoder forces the decoder.
	Decoder string `json:"decoder,omitempty"`
	// Draft forces a decoder where this model guesses ahead, named as in Peer.Draft.
	Draft string `json:"draft,omitempty"`
	// PreferSelf takes the asking user's machine as decoder when that costs at most SelfMargin more.
	PreferSelf bool `json:"prefer_self,omitempty"`
	// LeaveKV keeps pipelined plans from sending cache rows to the decoder: each stage keeps its own, and losing one
	// means a replay. The other shapes are not affected.
	LeaveKV bool `json:"leave_kv,omitempty"`
	// Guesses is how many guessed tokens are computed with each decoded one, on average, and Accepted how many of them are right.
	// 0 and 0: none are.
	Guesses  float64 `json:"guesses,omitempty"`
	Accepted float64 `json:"accepted,omitempty"`
	// HeldTokens is how many of the prompt's first tokens the decoder has the cache rows of, in all layers, as after a loss: they are not
	// computed again. Former is who has had which stage until now: those that keep theirs have these rows, others are handed them.
	HeldTokens int     `json:"held_tokens,omitempty"`
	Former     []Stage `json:"former,omitempty"`
	// Exclude names peers that must not be used, each with the reason to print.
	Exclude map[string]string `json:"exclude,omitempty"`
	// Include names peers that must be used, as a stage or as the decoder.
	Include []string `json:"include,omitempty"`
	// Reasons asks for a word about every peer offered: each is compared with the plan, which takes longer than planning.
	Reasons bool `json:"reasons,omitempty"`
}

// Margins inside which a preference beats a lower cost.
const (
	SelfMargin   = 0.25 // the asking user's machine as decoder
	RobustMargin = 0.10 // local over across over pipelined with the cache at the decoder over pipelined without
)

// maxGuesses is how many tokens at most are guessed with one.
const maxGuesses = 64

// chunkSizes are the chunks the planner tries, beside the whole prompt where it is shorter than the largest.
// Smaller ones are bound by reading weights, larger ones cost fill time and activation memory.
var chunkSizes = []int{16, 32, 64, 128, 256, 512}

// computed returns how many of the prompt's tokens are to be computed.
func (r *Request) computed() int { return r.PromptTokens - r.HeldTokens }

// chunks returns the chunk sizes to try, ascending.
func (r *Request) chunks() []int {
	tokens := r.computed()
	if r.Chunk > 0 {
		return []int{min(r.Chunk, tokens)}
	}
	var out []int
	for _, c := range chunkSizes {
		if c < tokens {
			out = append(out, c)
		}
	}
	if tokens <= chunkSizes[len(chunkSizes)-1] {
		out = append(out, tokens)
	}
	return out
}

// check returns an error wrapping [ErrContext] or [ErrConstraint] when r asks for what the model can't do.
func (r *Request) check(m *Model) error {
	if r.PromptTokens < 1 || r.NewTokens < 0 || r.PromptTokens > maxTokens || r.NewTokens > maxTokens {
		return constraintf("a plan needs at least 1 prompt token and 0 new ones, not %d and %d", r.PromptTokens, r.NewTokens)
	}
	if need := r.PromptTokens + r.NewTokens; m.Context > 0 && need > m.Context {
		return &ContextError{Need: need, Context: m.Context}
	}
	if why := r.guessFault(); why != "" {
		return constraintf("%s", why)
	}
	if r.HeldTokens < 0 || r.HeldTokens >= r.PromptTokens {
		return constraintf("%d tokens of %d are held: at least 0 can be, and 1 is left to compute", r.HeldTokens, r.PromptTokens)
	}
	if r.Chunk < 0 {
		return constraintf("a chunk of %d tokens", r.Chunk)
	}
	if r.Shape > Pipelined {
		return constraintf("unknown shape %d", r.Shape)
	}
	for i, c := range r.Cuts {
		if i > 0 && c <= r.Cuts[i-1] {
			return constraintf("cuts %v are not ascending", r.Cuts)
		}
		if c != m.Layers && !slices.Contains(m.Cuts, c) {
			return constraintf("the model can't be cut before layer %d; it can before %s", c, listCuts(m.Cuts))
		}
	}
	if r.Shape == Local && len(r.Cuts) > 0 {
		return constraintf("a local plan has no cuts, and %v were asked for", r.Cuts)
	}
	if len(r.Cuts) > 0 && len(r.Assign) > len(r.Cuts)+1 {
		return constraintf("%d peers assigned to %d ranges", len(r.Assign), len(r.Cuts)+1)
	}
	return r.checkNames()
}

// guessFault says what is impossible about the guesses; "" if nothing is.
func (r *Request) guessFault() string {
	if r.Accepted >= 0 && r.Accepted <= r.Guesses && r.Guesses <= maxGuesses {
		return ""
	}
	return fmt.Sprintf("%g guesses of which %g are right: at most %d may be made, and not more be right", r.Guesses, r.Accepted, maxGuesses)
}

// checkNames refuses lists that contradict themselves.
func (r *Request) checkNames() error {
	seen := make(map[string]bool)
	for _, id := range r.Assign {
		if id != "" && seen[id] {
			return constraintf("peer %s is assigned twice; a plan uses a peer once", id)
		}
		seen[id] = true
	}
	if last := r.assignedDecoder(); last != "" && r.Decoder != "" && last != r.Decoder {
		return constraintf("the last range is assigned to %s, but the decoder is to be %s", last, r.Decoder)
	}
	for _, id := range slices.Concat(r.Assign, r.Include, []string{r.Decoder}) {
		if why, out := r.Exclude[id]; id != "" && out {
			return constraintf("peer %s is asked for and excluded (%s)", id, why)
		}
	}
	return nil
}

// assignedDecoder returns the peer that Assign gives the last range, or "".
func (r *Request) assignedDecoder() string {
	if len(r.Assign) == 0 || len(r.Cuts) > 0 && len(r.Assign) <= len(r.Cuts) {
		return ""
	}
	return r.Assign[len(r.Assign)-1]
}

// listCuts writes legal cuts, shortened in the middle when they are many.
func listCuts(cuts []int) string {
	if len(cuts) == 0 {
		return "none"
	}
	if n := len(cuts); n > 12 {
		return fmt.Sprintf("%d, %d, %d, …, %d", cuts[0], cuts[1], cuts[2], cuts[n-1])
	}
	words := make([]string, len(cuts))
	for i, c := range cuts {
		words[i] = strconv.Itoa(c)
	}
	return strings.Join(words, ", ")
}
