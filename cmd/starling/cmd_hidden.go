package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/starling-swarm/starling/session"
)

type hiddenCmd struct {
	promptFlags
	Model     string    `short:"m" env:"STARLING_MODEL" placeholder:"ID|NAME" help:"Model: its ID, six or more digits of its start, or its name. Default: the only one known."`
	Layer     []int     `short:"l" placeholder:"L" help:"Boundaries between layers: L is the stream that layer L reads; 0 is the embedding, the model's layer count what the last layer leaves. Default: all."`
	Positions positions `placeholder:"A-B" help:"Positions of the prompt's tokens, from 0. Default: all."`
	Logits    bool      `help:"Write the logits of the positions instead: what the model says of the token after each."`
	Out       string    `short:"o" required:"" type:"path" placeholder:"FILE" help:"File to write, for numpy.load."`
	routeFlags
	Wait time.Duration `default:"1m" placeholder:"TIME" help:"How long to wait for room where every peer that could compute it is busy. Default: 1m; 0 fails at once."`
	JSON bool          `name:"json" help:"Print what was written as a JSON object, with the prompt's tokens."`
}

// Help implements kong.HelpProvider.
func (hiddenCmd) Help() string {
	return `Writes the hidden states that a prompt has between layers, as the swarm computes them, to a file for NumPy: float32,
[boundary][position][width]; with --logits [position][vocabulary]. The numbers are bit for bit those of one machine that holds
the whole model, whoever computes. From Go, and in conversations: docs/session-api.md.

Examples:

  starling hidden --raw -o all.npy "The capital of France is"
  starling hidden -m SmolLM2 --layer 0,15,30 --positions 4-6 -o some.npy "Why is the sky blue?"
  starling hidden --logits -o logits.npy --raw - < text.txt
  python3 -c 'import numpy; print(numpy.load("all.npy").shape)'`
}

// written is what a file of rows has.
type written struct {
	File      string  `json:"file"`
	Shape     []int   `json:"shape"`
	Layers    []int   `json:"layers,omitempty"` // boundaries
	Positions [2]int  `json:"positions"`        // the last one excluded
	Tokens    []int32 `json:"tokens"`           // of the whole prompt
	Model     string  `json:"model"`
}

// Run writes the file.
func (c *hiddenCmd) Run(ctx context.Context, g *globals) error {
	p, err := c.promptFlags.read(os.Stdin)
	switch {
	case err != nil:
		return err
	case c.Logits && len(c.Layer) > 0:
		return usageError(errors.New("--logits are what the last layer leads to: drop --layer, or ask twice"))
	case strings.HasSuffix(strings.ToLower(c.Model), ".gguf"):
		return usageError(errors.New("-m names a file: publish it with 'starling publish', and name the model"))
	}
	conn, err := g.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.close()
	shown := newProgress()
	s, err := session.Open(ctx, conn.Client, session.Options{Model: c.Model, Constraints: c.constraints(), Wait: c.Wait, On: func(ev session.Event) {
		if ev.Kind == "progress" {
			shown.event(ev)
		}
	}})
	if err == nil {
		err = p.begin(ctx, s)
	}
	if err != nil {
		shown.done()
		return err
	}
	w, err := c.write(ctx, s)
	shown.done()
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(w)
	}
	var dims []string
	for _, n := range w.Shape {
		dims = append(dims, strconv.Itoa(n))
	}
	fmt.Printf("%s: float32, %s; %d prompt tokens\n", printable(c.Out), strings.Join(dims, " × "), len(w.Tokens))
	return nil
}

// write fetches the rows and writes them. A file that can't be written is found before anything is computed; the one that was there
// before is replaced when the new one is complete.
func (c *hiddenCmd) write(ctx context.Context, s *session.Session) (w written, err error) {
	m := s.Model()
	w = written{File: c.Out, Layers: c.Layer, Positions: [2]int{c.Positions.first, c.Positions.end}, Tokens: s.Tokens(), Model: m.ID}
	if c.Positions == (positions{}) {
		w.Positions[1] = s.Len()
	}
	for l := 0; l <= m.NumLayers && len(c.Layer) == 0 && !c.Logits; l++ {
		w.Layers = append(w.Layers, l)
	}
	part := c.Out + ".part"
	f, err := os.Create(part)
	if err != nil {
		return w, err
	}
	defer func() {
		if err = cmp.Or(err, f.Close()); err == nil {
			err = os.Rename(part, c.Out)
		}
		if err != nil {
			os.Remove(part)
		}
	}()
	first, end := w.Positions[0], w.Positions[1]
	var parts [][]float32
	if c.Logits {
		w.Shape = []int{end - first, m.Vocab}
		logits, err := s.Logits(ctx, first, end)
		if err != nil {
			return w, err
		}
		parts = [][]float32{logits}
	} else {
		w.Shape = []int{len(w.Layers), end - first, m.Width}
		if parts, err = s.Hidden(ctx, w.Layers, first, end); err != nil {
			return w, err
		}
	}
	return w, writeNPY(f, w.Shape, parts...)
}
