package node

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/starling-swarm/starling/artifacts"
	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/route"
	"github.com/starling-swarm/starling/runtime"
)

// effectText is what the effect of rounding is measured with where a request names no text; effectTokens is how many of its tokens
// at most: logits of all of them travel to the client where this node decodes nothing.
const (
	effectText = "The tide comes in twice a day. A ship that waits for it saves its anchor, they say, but one that sails at noon, against the wind, " +
		"may still arrive first: def tide(hours): return 2.1 * cos(hours / 12.42)"
	effectTokens = 64
)

// effect tells what the rounding of a plan saves and what it changes, against the same plan without rounding: bytes on each link, the time
// to the first token, and logits, by really computing a text both ways. nil: the plan rounds nothing.
func (n *Node) effect(ctx context.Context, id artifacts.ID, c *artifacts.Card, p route.Plan, q control.PlanRequest) (*control.Effect, error) {
	w, err := readNumerics(control.Constraints{KV: p.KV, Seam: p.Seam})
	if err != nil || w.kv == runtime.KVF16 && w.seam == runtime.SeamF32 {
		return nil, err
	}
	e := &control.Effect{FirstToken: p.Predicted.FirstTokenSeconds}
	peers, links := n.planPeers(id)
	plain, err := p.Predict(planModel(c, p.PromptTokens, p.PromptTokens, runtime.KVF16, runtime.SeamF32), peers, links)
	if err != nil {
		return nil, err
	}
	e.FirstTokenPlain = plain.FirstTokenSeconds
	rounds := runtime.Profile{}.Rounding(w.kv, w.seam, w.cuts)
	for i, s := range p.Stages {
		to := p.Decoder
		if i+1 < len(p.Stages) {
			to = p.Stages[i+1].Peer
		}
		l := control.LinkBytes{From: s.Peer, To: to, Seam: rounds.SeamAt(s.Layers.Last).Bytes(c.Width), SeamPlain: runtime.SeamF32.Bytes(c.Width)}
		if p.KVToDecoder {
			for x := s.Layers.First; x < s.Layers.Last; x++ {
				l.KV += w.kv.Bytes(int(c.KVBytesPerToken[x] / 2))
				l.KVPlain += int(c.KVBytesPerToken[x])
			}
		}
		e.Links = append(e.Links, l)
	}
	if err := n.measureLogits(ctx, id, p, q.Text, q.Trust, e); err != nil {
		e.NotMeasured = err.Error()
	}
	return e, nil
}

// measureLogits computes a text with the plan's rounding and without: on this node where it can decode alone, else over the plan's
// route.
func (n *Node) measureLogits(ctx context.Context, id artifacts.ID, p route.Plan, text, trust string, e *control.Effect) error {
	m, _, err := n.header(ctx, id, func(control.Event) error { return nil })
	if err != nil {
		return err
	}
	tok, err := n.tokenizer(m)
	if err != nil {
		return err
	}
	if text == "" {
		text = effectText
	}
	tokens, err := encodePrompt(tok, control.RunRequest{Prompt: text})
	if err != nil {
		return err
	}
	tokens = tokens[:min(len(tokens), effectTokens)]
	run := control.RunRequest{Model: id.String(), Tokens: tokens, PromptOnly: true, Fresh: true, Probe: &control.Probe{Last: len(tokens), Logits: true}}
	e.Where = "over the plan's route"
	if s := n.served(id); s != nil && s.decodes() && s.exec.Layers().First == 0 {
		e.Where = "on this node"
		run.Constraints = control.Constraints{Shape: route.Local.String(), Decoder: n.ID()}
	} else {
		run.Constraints = control.Constraints{Shape: p.Shape.String(), Cuts: cutsOf(p), Decoder: p.Decoder}
		for _, s := range p.Stages {
			run.Assign = append(run.Assign, s.Peer)
		}
	}
	run.Trust = trust
	plain, err := n.logits(ctx, run, tok.Size())
	if err != nil {
		return err
	}
	run.KV, run.Seam = p.KV, p.Seam
	rounded, err := n.logits(ctx, run, tok.Size())
	if err != nil {
		return err
	}
	e.Positions = len(plain)
	for i := range plain {
		largest, kl, same := compareLogits(plain[i], rounded[i])
		e.Largest = max(e.Largest, largest)
		e.KL += kl / float64(len(plain))
		if same {
			e.Top1++
		}
	}
	return nil
}

// logits returns those of every position of a request's prompt.
func (n *Node) logits(ctx context.Context, q control.RunRequest, vocab int) ([][]float32, error) {
	rows := make([][]float32, q.Probe.Last)
	_, err := n.run(ctx, q, func(ev control.Event) error {
		if ev.Rows == nil || !ev.Rows.Logits {
			return nil
		}
		all := runtime.SeamF32.Decode(ev.Rows.Data, vocab)
		for i := range ev.Rows.Count {
			rows[ev.Rows.First+i] = all[i*vocab : (i+1)*vocab]
		}
		return nil
	})
	for i, row := range rows {
		if row == nil && err == nil {
			err = fmt.Errorf("no logits came of position %d", i)
		}
	}
	return rows, err
}

// compareLogits returns the largest difference of two rows, the Kullback-Leibler divergence of the second's distribution from the
// first's, in nats, and whether both have the same most likely token.
func compareLogits(a, b []float32) (largest, divergence float64, same bool) {
	topA, topB := 0, 0
	for i := range a {
		largest = max(largest, math.Abs(float64(a[i])-float64(b[i])))
		if a[i] > a[topA] {
			topA = i
		}
		if b[i] > b[topB] {
			topB = i
		}
	}
	norm := func(x []float32, top float32) (sum float64) {
		for _, v := range x {
			sum += math.Exp(float64(v) - float64(top))
		}
		return math.Log(sum) + float64(top)
	}
	normA, normB := norm(a, a[topA]), norm(b, b[topB])
	for i := range a {
		la, lb := float64(a[i])-normA, float64(b[i])-normB
		divergence += math.Exp(la) * (la - lb)
	}
	return largest, max(divergence, 0), topA == topB // rounding may leave a little less than nothing
}

// explainEffect is an effect as `starling plan` prints it.
func explainEffect(p route.Plan, e *control.Effect) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\nKV %s and seams %s, against KV f16 and seams f32:\n", p.KV, p.Seam)
	for _, l := range e.Links {
		fmt.Fprintf(&b, "  per token  %s → %s  seam %d bytes instead of %d", l.From, l.To, l.Seam, l.SeamPlain)
		if l.KVPlain > 0 {
			fmt.Fprintf(&b, "; to the decoder KV %d instead of %d", l.KV, l.KVPlain)
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "  first token  %.3g s predicted, instead of %.3g s\n", e.FirstToken, e.FirstTokenPlain)
	if e.NotMeasured != "" {
		fmt.Fprintf(&b, "  logits  not measured: %s\n", e.NotMeasured)
		return b.String()
	}
	fmt.Fprintf(&b, "  logits  measured %s at %d positions: largest difference %.3g, KL divergence %.3g nats a token, the likeliest token is the same at %d\n",
		e.Where, e.Positions, e.Largest, e.KL, e.Top1)
	return b.String()
}
