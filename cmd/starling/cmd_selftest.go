package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	goruntime "runtime"
	"time"

	"github.com/starling-swarm/starling/kernels"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/golden"
	"github.com/starling-swarm/starling/session"
)

type selftestCmd struct {
	JSON   bool   `name:"json" help:"Print a JSON object."`
	Golden string `name:"golden" placeholder:"DIR" help:"Compare with a reference implementation instead: DIR has model.gguf and expected.json."`
}

// Help implements kong.HelpProvider.
func (selftestCmd) Help() string {
	return `Computes fixed inputs with every kernel, and a fixed prompt with the built-in smoke model, and compares the bits with
those that every build on every processor must give. Exit status 1 if they differ: then this build or machine would
give wrong answers, and "starling serve" does not start if the kernels' bits do. STARLING_KERNELS=NAME tests other
kernels than the fastest ("starling version -v" lists them), and fails where they can't be had.

With --golden it computes what a reference implementation has computed, and compares cache sizes, tokens, logits, hidden
states after each layer and greedy decoding; exit status 1 at the first disagreement, which it names. The form of
expected.json is in docs/golden.md.`
}

// selftestReport is what "selftest --json" prints.
type selftestReport struct {
	Version  string        `json:"version"`
	Platform string        `json:"platform"`
	Profile  string        `json:"numerics_profile"`
	Variant  string        `json:"variant"` // of the kernels
	Kernels  string        `json:"kernels_digest"`
	Logits   string        `json:"smoke_logits"`
	KV       string        `json:"smoke_kv"`
	Text     string        `json:"smoke_text"`
	Took     time.Duration `json:"took_ns"`
	OK       bool          `json:"ok"`
	Error    string        `json:"error,omitempty"`
}

// Run tests this build.
func (c *selftestCmd) Run(ctx context.Context, g *globals) error {
	if c.Golden != "" {
		return c.golden(ctx, g)
	}
	began := time.Now()
	r := selftestReport{Version: version(), Platform: goruntime.GOOS + "/" + goruntime.GOARCH, Profile: runtime.NewProfile(runtime.KVF16).String(), Variant: kernels.Active().String()}
	digest, err := kernels.SelfTest()
	r.Kernels = fmt.Sprintf("%x", digest)
	if err == nil {
		err = kernels.VariantError()
	}
	if err == nil {
		err = r.smoke(ctx, g.engine())
	}
	r.Took = time.Since(began)
	if r.OK = err == nil; err != nil {
		r.Error = oneLine(err.Error())
	}
	if c.JSON {
		return errors.Join(err, printJSON(r))
	}
	fmt.Printf("starling  %s, %s, %s kernels\nnumerics  %s\nkernels   %s\nlogits    %s\nKV        %s\n", r.Version, r.Platform, r.Variant, r.Profile, r.Kernels, r.Logits, r.KV)
	if err != nil {
		fmt.Println("FAIL")
		return err
	}
	fmt.Printf("ok        every bit as specified, in %s\n", durationText(r.Took))
	return nil
}

// golden compares a folder's model with its reference.
func (c *selftestCmd) golden(ctx context.Context, g *globals) error {
	r, err := golden.Check(ctx, c.Golden, g.engine())
	if c.JSON {
		report := struct {
			golden.Report
			OK    bool   `json:"ok"`
			Error string `json:"error,omitempty"`
		}{r, err == nil, ""}
		if err != nil {
			report.Error = oneLine(err.Error())
		}
		return errors.Join(err, printJSON(report))
	}
	if err != nil {
		return err
	}
	if r.Quantised {
		fmt.Printf("ok        as the reference, with quantised activations: cosine of logits %.4f or more, %d of %d greedy tokens\n", r.Cosine, r.Greedy, r.GreedyOf)
		return nil
	}
	fmt.Printf("ok        as the reference: logits within %.2g, hidden states within %.2g, %d of %d greedy tokens\n", r.Logits, r.Hidden, r.Greedy, r.GreedyOf)
	return nil
}

// smoke runs the smoke model and compares hashes of what it computes.
func (r *selftestReport) smoke(ctx context.Context, o runtime.Options) error {
	dir, err := os.MkdirTemp("", "starling-selftest-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path, err := writeSmoke(dir)
	if err != nil {
		return err
	}
	o.Path = path
	m, err := runtime.Open(o)
	if err != nil {
		return err
	}
	defer m.Close()
	tokens, err := prompt{text: smokePrompt}.tokens(m.Tokenizer())
	if err != nil {
		return err
	}
	ref, err := generate(ctx, m, m.Profile(), tokens, session.Request{MaxNew: 64}, runtime.Sampling{}, nil)
	if err != nil {
		return err
	}
	r.Logits, r.KV, r.Text = ref.LogitsHash, ref.KVHash, ref.Text
	if r.Logits != smokeLogits || r.KV != smokeKV {
		return fmt.Errorf("the smoke model's logits and KV hash to %s and %s, they must to %s and %s: this build or machine computes other bits than specified",
			shortID(r.Logits), shortID(r.KV), shortID(smokeLogits), shortID(smokeKV))
	}
	return nil
}

// What the smoke model computes for smokePrompt, greedily, on every machine
// (see reference).
const (
	smokeLogits = "adb5155b9177eb71806fc884a9b063a6303bd34a362b656c46528332df9b02d6"
	smokeKV     = "371babbff5f1bee68717e7a4b706c0028957d4edbb2d6cf6ff001bc35940e647"
)
