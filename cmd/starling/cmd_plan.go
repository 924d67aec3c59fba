package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/starling-swarm/starling/node/control"
)

// routeFlags narrow the choice of a route.
type routeFlags struct {
	Decode  string   `enum:",here,any" default:"" placeholder:"here|any" help:"Who decodes: here, this node; any, whoever is best. Default: this node if it can and isn't much slower."`
	Shape   string   `enum:",local,across,pipelined" default:"" placeholder:"SHAPE" help:"Force local (one peer does all), across (prefill across, decode at one peer) or pipelined (decoding walks the route, too)."`
	Cuts    []int    `placeholder:"A" help:"Force where the layers are cut: 10,20 makes layers 0–9, 10–19 and, at the decoder, the rest."`
	Assign  []string `placeholder:"PEER" help:"Force the peers of the ranges, in layer order."`
	Decoder string   `placeholder:"PEER" help:"Force the peer that decodes."`
	Trust   string   `enum:",members,listed,any" default:"" env:"STARLING_TRUST" placeholder:"members|listed|any" help:"Who may see anything of the prompt, beside this node: members of a private swarm, the peers that you list with \"starling swarm trust\", or any peer. Default: any."`
	Chunk   int      `placeholder:"N" help:"Tokens that travel together at most; a prompt's first and last chunks are smaller. Default: the planner's choice."`
	roundingFlags
}

// roundingFlags say how everybody rounds.
type roundingFlags struct {
	Seam string `placeholder:"TYPE" help:"Number format of the residual stream between peers: f32, f16, bf16 or q8_0, for slow links; auto lets the plan choose. All but f32 change the numbers a little: the answer is a function of the format and of where the plan cuts, which q8_0@10,20 says instead. Default: f32."`
	KV   string `name:"kv" enum:",f16,q8_0,auto" default:"" placeholder:"TYPE" help:"Number format of KV rows: f16, or q8_0, which has half the bytes on links and changes the numbers a little; auto lets the plan choose. Default: f16."`
}

func (f *routeFlags) constraints() control.Constraints {
	return control.Constraints{Shape: f.Shape, Cuts: f.Cuts, Assign: f.Assign, Decoder: f.Decoder, Decode: f.Decode, Chunk: f.Chunk, Seam: f.Seam, KV: f.KV, Trust: f.Trust}
}

type planCmd struct {
	Model        string `arg:"" help:"Model: its ID, six or more digits of its start, or its name."`
	PromptTokens int    `required:"" placeholder:"N" help:"Length of the prompt."`
	NewTokens    int    `required:"" placeholder:"M" help:"Length of the answer."`
	Text         string `placeholder:"TEXT" help:"With --seam or --kv: measure with this text what rounding changes. Default: a text of ours."`
	routeFlags
	WhatIf []string `sep:"none" placeholder:"MACHINE" help:"Plan also with a machine that the swarm doesn't have, such as 'add 32GB@60GB/s,1Gbit': memory, its bandwidth, and, if you like, network and arithmetic (20TFLOPS). May be given several times: then with all of them."`
	Draft  string   `placeholder:"ID|NAME" help:"Small model that is to guess ahead where the answer is decoded (serve --draft)."`
	JSON   bool     `name:"json" help:"Print the plan as a JSON object."`
}

// Help implements kong.HelpProvider.
func (planCmd) Help() string {
	return `Shows which peers would compute which layers for a prompt of N tokens and an answer of M, what that would cost, who
would see what, and why each peer is or isn't used. Nothing is computed, but with --seam or --kv: then a short text is, both ways,
to tell what the rounding changes: the largest difference of logits, the KL divergence, and how often the likeliest token is the same.

Examples:

  starling plan SmolLM2 --prompt-tokens 2000 --new-tokens 200
  starling plan SmolLM2 --prompt-tokens 2000 --new-tokens 200 --shape across --cuts 10,20
  starling plan SmolLM2 --prompt-tokens 2000 --new-tokens 200 --seam q8_0 --kv q8_0
  starling plan SmolLM2 --prompt-tokens 2000 --new-tokens 200 --what-if 'add 32GB@60GB/s,1Gbit'`
}

// Run prints the plan.
func (c *planCmd) Run(ctx context.Context, g *globals) error {
	s, err := g.connect(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	k := c.constraints()
	k.Draft = c.Draft
	p, err := s.Plan(ctx, control.PlanRequest{Model: c.Model, PromptTokens: c.PromptTokens, NewTokens: c.NewTokens, Text: c.Text, WhatIf: c.WhatIf, Constraints: k})
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(p)
	}
	if p.NoPlan == "" {
		fmt.Print(printableLines(p.Explain))
		fmt.Printf("\n%s\n", seesText(p.Sees))
	}
	if w := p.WhatIf; w != nil {
		if p.NoPlan == "" {
			fmt.Println()
		}
		fmt.Print(printableLines(w.Explain))
	}
	return nil
}

// seesText says in a sentence who sees what of a prompt.
func seesText(list []control.Sight) string {
	if len(list) == 1 && list[0].Self {
		return "nobody but this node sees anything of the prompt"
	}
	var parts []string
	for _, s := range list {
		who := shortPeer(s.Peer)
		if s.Self {
			who = "this node"
		}
		parts = append(parts, fmt.Sprintf("%s sees %s", who, printable(s.What)))
	}
	return strings.Join(parts, "; ") + ": each of them can recover the prompt"
}

// printableLines is printable for texts of several lines.
func printableLines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = printable(lines[i])
	}
	return strings.Join(lines, "\n")
}
