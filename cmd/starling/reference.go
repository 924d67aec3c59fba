package main

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"math"
	"time"

	"lukechampine.com/blake3"

	"github.com/starling-swarm/starling/node"
	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/session"
)

// referenceChunk is how many prompt tokens go through the model at once in a
// single-process run: enough for speed, few enough to show progress. It never
// changes a bit.
const referenceChunk = 64

// reference is a run of a whole model in this process, through package runtime
// alone. Swarms are compared with it.
type reference struct {
	Prompt     []int32
	New        []int32 // as sampled, an end token included
	Text       string
	Reason     string // "stop", "length"
	Stop       string // the text that ended it
	LogitsHash string // BLAKE3-256 over the logits (f32, little endian) of every sampled position in order
	KVHash     string // BLAKE3-256 over the layers' KV digests, ascending, after the last computed position
	TTFT       time.Duration
	Decode     time.Duration
}

// generate answers prompt with a whole model by a numerics profile; sampling is q's, for this model. On gets the text as it comes, and how much
// of the prompt has been read; it may be nil.
func generate(ctx context.Context, m runtime.Executor, profile runtime.Profile, prompt []int32, q session.Request, sampling runtime.Sampling, on func(control.Event)) (*reference, error) {
	cfg := m.Config()
	maxNew, err := node.MaxNew(len(prompt), q.MaxNew, cfg.Context)
	if err != nil {
		return nil, err
	}
	stops, err := node.NewStops(q.Stop)
	if err != nil {
		return nil, err
	}
	seq, err := m.NewSequenceFor(profile, len(prompt)+maxNew, m.Layers())
	if err != nil {
		return nil, err
	}
	defer seq.Close()
	began := time.Now()
	r := &reference{Prompt: prompt, Reason: "length"}
	logits, text, tok := blake3.New(32, nil), m.Tokenizer().NewStream(), m.Tokenizer()
	tell := func(ev control.Event) {
		r.Text += ev.Text
		if on != nil {
			on(ev)
		}
	}
	tokens, at := append([]int32{}, prompt...), 0
	for len(r.New) < maxNew {
		step := &runtime.Step{Seq: seq, Layers: m.Layers(), Start: at, N: min(len(tokens)-at, referenceChunk)}
		step.Tokens = tokens[at : at+step.N]
		at += step.N
		if at == len(tokens) {
			step.LogitRows = []int{step.N - 1}
		}
		if err := m.Run(ctx, []*runtime.Step{step}); err != nil {
			return nil, err
		}
		if at < len(tokens) {
			tell(control.Event{Kind: "progress", Phase: "prefill", Done: int64(at), Total: int64(len(prompt))})
			continue
		}
		hashLogits(logits, step.Logits[0])
		id, err := runtime.Sample(step.Logits[0], tokens, len(tokens), sampling)
		if err != nil {
			return nil, err
		}
		if len(r.New) == 0 {
			r.TTFT = time.Since(began)
		}
		tokens, r.New = append(tokens, id), append(r.New, id)
		ev := control.Event{Kind: "text", Token: id}
		if tok.IsEOG(id) {
			r.Reason = "stop"
		} else {
			ev.Text = text.Push(id)
		}
		if r.Reason == "stop" || len(r.New) == maxNew { // the answer's last one
			ev.Text = stops.Push(ev.Text+text.Flush()) + stops.Flush()
		} else {
			ev.Text = stops.Push(ev.Text)
		}
		if stops.Found != "" {
			r.Reason = "stop"
		}
		if q.Logprobs > 0 {
			chosen, top := runtime.Logprobs(step.Logits[0], id, q.Logprobs)
			ev.Logprobs = node.Logprobs(tok, chosen, top)
		}
		if tell(ev); r.Reason == "stop" {
			break
		}
	}
	r.Stop, r.Decode = stops.Found, time.Since(began)-r.TTFT
	r.LogitsHash = hex.EncodeToString(logits.Sum(nil))
	kv := blake3.New(32, nil)
	for l := range cfg.Layers {
		d := seq.Digest(l)
		kv.Write(d[:])
	}
	r.KVHash = hex.EncodeToString(kv.Sum(nil))
	return r, nil
}

func hashLogits(h hash.Hash, logits []float32) {
	b := make([]byte, 0, 4*len(logits))
	for _, x := range logits {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	h.Write(b)
}

// rate returns tokens per second, 0 where nothing was measured.
func rate(tokens int, d time.Duration) float64 {
	if tokens <= 0 || d <= 0 {
		return 0
	}
	return float64(tokens) / d.Seconds()
}

// account makes a single-process run's account.
func (r *reference) account() *control.Account {
	return &control.Account{Reason: r.Reason, Stop: r.Stop, Text: r.Text, PromptTokens: r.Prompt, NewTokens: r.New, TTFT: r.TTFT, Prefill: r.TTFT, Decode: r.Decode,
		DecodeTokensS: rate(len(r.New)-1, r.Decode), LogitsHash: r.LogitsHash, KVHash: r.KVHash}
}
