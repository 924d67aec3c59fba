package gateway

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"

	"github.com/starling-swarm/starling/session"
)

// completionRequest is the body of POST /v1/completions.
type completionRequest struct {
	sampled
	Prompt   prompts         `json:"prompt"`
	Logprobs *int            `json:"logprobs"` // of so many of the likeliest tokens with each token
	Echo     bool            `json:"echo"`
	BestOf   *int            `json:"best_of"`
	Suffix   json.RawMessage `json:"suffix"`
}

// prompts are one or several, each a text or its tokens.
type prompts []prompt

type prompt struct {
	text   string
	tokens []int32
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *prompts) UnmarshalJSON(b []byte) error {
	var text string
	var list []string
	var tokens []int32
	var lists [][]int32
	switch *p = nil; {
	case string(b) == "null":
	case json.Unmarshal(b, &text) == nil:
		*p = prompts{{text: text}}
	case json.Unmarshal(b, &list) == nil:
		for _, t := range list {
			*p = append(*p, prompt{text: t})
		}
	case json.Unmarshal(b, &tokens) == nil:
		*p = prompts{{tokens: tokens}}
	case json.Unmarshal(b, &lists) == nil:
		for _, t := range lists {
			*p = append(*p, prompt{tokens: t})
		}
	default:
		return badField("prompt", "write a text, a list of token IDs, or a list of either")
	}
	return nil
}

// check refuses what this gateway can't do.
func (q *completionRequest) check() error {
	switch {
	case len(q.Prompt) == 0:
		return badField("prompt", "write a text")
	case len(q.Prompt) > maxChoices:
		return badField("prompt", "%d prompts: at most %d", len(q.Prompt), maxChoices)
	case q.Logprobs != nil && (*q.Logprobs < 0 || *q.Logprobs > 20):
		return badField("logprobs", "%d: write 0 to 20", *q.Logprobs)
	case q.Echo:
		return badField("echo", "not supported by this gateway yet; leave it out")
	case q.BestOf != nil && *q.BestOf > 1:
		return badField("best_of", "not supported by this gateway; ask for n answers")
	}
	return refuse(map[string]json.RawMessage{"suffix": q.Suffix})
}

// completionReply is the whole answer, or one event of a stream.
type completionReply struct {
	ID          string             `json:"id"`
	Object      string             `json:"object"`
	Created     int64              `json:"created"`
	Model       string             `json:"model"`
	Fingerprint string             `json:"system_fingerprint"`
	Choices     []completionChoice `json:"choices"`
	Usage       *usage             `json:"usage,omitempty"`
}

type completionChoice struct {
	Text     string              `json:"text"`
	Index    int                 `json:"index"`
	Logprobs *completionLogprobs `json:"logprobs"`
	Finish   *string             `json:"finish_reason"`
}

// completionLogprobs are of an answer's tokens, or of a piece's.
type completionLogprobs struct {
	Tokens   []string             `json:"tokens"`
	Logprobs []float32            `json:"token_logprobs"`
	Top      []map[string]float32 `json:"top_logprobs"`
	Offsets  []int                `json:"text_offset"` // in characters of the answer
}

// add adds a token that begins at a character of the answer.
func (l *completionLogprobs) add(t session.Token, top, at int) {
	best := map[string]float32{}
	for _, x := range t.Logprobs[1:min(1+top, len(t.Logprobs))] {
		best[x.Text] = x.Logprob
	}
	l.Tokens, l.Logprobs = append(l.Tokens, t.Logprobs[0].Text), append(l.Logprobs, t.Logprobs[0].Logprob)
	l.Top, l.Offsets = append(l.Top, best), append(l.Offsets, at)
}

// completing is a request under way: n answers to each of some prompts.
type completing struct {
	asked []*asking
	n     int
	top   int // likeliest tokens that are told; negative: none, nor the token's own

	mu      sync.Mutex
	choices []completionChoice // of a stream: what has been told so far
	usage   usage
}

// completions answers POST /v1/completions.
func (g *gateway) completions(w http.ResponseWriter, r *http.Request) {
	var q completionRequest
	err := decode(r, &q)
	if err == nil {
		err = q.check()
	}
	if err != nil {
		fail(w, err)
		return
	}
	c, reqs, err := g.completing(r.Context(), &q)
	if c != nil {
		defer c.close()
	}
	if err != nil {
		fail(w, err)
		return
	}
	m := c.asked[0].s.Model()
	reply := completionReply{ID: newID("cmpl-"), Object: "text_completion", Created: g.now().Unix(), Model: describe(&m, nil).ID, Fingerprint: "fp_" + m.ID[:12]}
	if q.Stream {
		q.stream(w, r, c, reqs, reply)
		return
	}
	text := make([]strings.Builder, len(c.choices))
	err = c.run(r.Context(), reqs, func(i int, piece string, _ *completionLogprobs) error {
		text[i].WriteString(piece)
		return nil
	}, func(i int, reason *string) error {
		c.choices[i].Text, c.choices[i].Finish = text[i].String(), reason
		return nil
	})
	if err != nil {
		fail(w, err)
		return
	}
	reply.Choices, reply.Usage = c.choices, &c.usage
	c.asked[0].sign(w.Header())
	writeJSON(w, http.StatusOK, reply)
}

// completing opens a session for each prompt, and says what each is asked for. The caller closes them, after an error, too.
func (g *gateway) completing(ctx context.Context, q *completionRequest) (*completing, []session.Request, error) {
	n, err := q.choices()
	if err != nil {
		return nil, nil, err
	}
	if n*len(q.Prompt) > maxChoices {
		return nil, nil, badField("n", "%d answers to each of %d prompts: at most %d in all", n, len(q.Prompt), maxChoices)
	}
	c := &completing{n: n, top: -1}
	if q.Logprobs != nil {
		c.top = *q.Logprobs
	}
	var reqs []session.Request
	for i, p := range q.Prompt {
		a, err := g.open(ctx, q.Model)
		if err != nil {
			return c, nil, err
		}
		c.asked = append(c.asked, a)
		if p.tokens != nil {
			err = a.s.Append(p.tokens...)
		} else {
			err = a.s.AppendText(ctx, p.text)
		}
		if err != nil {
			return c, nil, ofPrompt("prompt", err)
		}
		if a.s.Len() == 0 {
			return c, nil, badField("prompt", "prompt %d has no tokens", i)
		}
		req, err := q.request(a.s.Model().Context - a.s.Len())
		if err != nil {
			return c, nil, err
		}
		if c.top >= 0 {
			req.Logprobs = max(c.top, 1)
		}
		reqs = append(reqs, req)
	}
	c.choices = make([]completionChoice, n*len(c.asked))
	for i := range c.choices {
		c.choices[i].Index = i
	}
	return c, reqs, nil
}

func (c *completing) close() {
	for _, a := range c.asked {
		a.s.Close()
	}
}

// run makes all answers. piece gets what the answers grow by, done why each ended; both are called one at a time.
func (c *completing) run(ctx context.Context, reqs []session.Request, piece func(choice int, text string, p *completionLogprobs) error, done func(choice int, reason *string) error) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	characters := make([]int, len(c.choices))
	var all sync.WaitGroup
	for k, a := range c.asked {
		prompt := a.s.Len()
		all.Go(func() {
			err := a.answers(ctx, c.n, reqs[k], func(i int, t session.Token) error {
				c.mu.Lock()
				defer c.mu.Unlock()
				i += k * c.n
				var p *completionLogprobs
				if c.top >= 0 && len(t.Logprobs) > 0 {
					if c.choices[i].Logprobs == nil {
						c.choices[i].Logprobs = &completionLogprobs{}
					}
					c.choices[i].Logprobs.add(t, c.top, characters[i])
					p = &completionLogprobs{}
					p.add(t, c.top, characters[i])
				}
				characters[i] += len([]rune(t.Text))
				return piece(i, t.Text, p)
			}, func(i int, account *session.Account) error {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.usage.add(prompt, i == 0, account)
				return done(i+k*c.n, &account.Reason)
			})
			if err != nil {
				end(err)
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// stream sends the answers as they come.
func (q *completionRequest) stream(w http.ResponseWriter, r *http.Request, c *completing, reqs []session.Request, reply completionReply) {
	out := newEventStream(w)
	out.begun = c.asked[0].sign
	send := func(choice completionChoice) error {
		ev := reply
		ev.Choices = []completionChoice{choice}
		return out.send(ev)
	}
	err := c.run(r.Context(), reqs, func(i int, text string, p *completionLogprobs) error {
		if text == "" && p == nil {
			return nil
		}
		return send(completionChoice{Index: i, Text: text, Logprobs: p})
	}, func(i int, reason *string) error {
		return send(completionChoice{Index: i, Finish: reason})
	})
	if err != nil {
		out.fail(err)
		return
	}
	if q.StreamOptions != nil && q.StreamOptions.IncludeUsage {
		reply.Choices, reply.Usage = []completionChoice{}, &c.usage
		_ = out.send(reply) // the client may be gone
	}
	out.end()
}
