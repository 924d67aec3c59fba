package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/starling-swarm/starling/runtime"
)

type inspectCmd struct {
	File string `arg:"" help:"GGUF file, or any part of a split set."`
	JSON bool   `name:"json" help:"Print one JSON object."`
}

// Help implements kong.HelpProvider.
func (inspectCmd) Help() string {
	return `Says what a GGUF file holds, what running it takes, and whether this build can: each thing that it cannot is named, and
the exit status is then 1. Only headers are read, so a file of full size whose weights have yet to come (as pull makes it) will do; one cut short won't.

"Cache" is the memory that a session of so many tokens takes on a node that holds all layers, beside the weights: in half
precision, which nodes use, and in single. A layer's cache is append-only (a row for each position), a window (only the
latest rows count), latent (one compressed row for all heads), or a state (of one size, however many tokens).

Examples:

  starling inspect model.gguf
  starling inspect model-00001-of-00009.gguf
  starling inspect --json model.gguf | jq .unsupported`
}

// errUnsupported ends inspect with a status that scripts can see.
var errUnsupported = errors.New("this build cannot run the model")

// Run describes the file.
func (c *inspectCmd) Run() error {
	d, err := runtime.Describe(c.File)
	if err != nil {
		return err
	}
	if c.JSON {
		err = printJSON(d)
	} else {
		err = table(os.Stdout, func(w io.Writer) { describe(w, d) })
	}
	if err == nil && len(d.Unsupported) > 0 {
		return errUnsupported
	}
	return err
}

// cacheLengths are the tokens that caches are sized for.
var cacheLengths = []struct {
	name   string
	tokens int64
}{{"4k", 4 << 10}, {"32k", 32 << 10}, {"128k", 128 << 10}, {"1M", 1 << 20}}

// describe writes a description as rows of two columns.
func describe(w io.Writer, d *runtime.Description) {
	row := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%s\t%s\n", name, printable(fmt.Sprintf(format, args...)))
	}
	known := func(text string) string {
		if text == "" {
			return "–"
		}
		return text
	}
	row("Name", "%s", known(d.Name))
	row("Architecture", "%s", known(d.Arch))
	size := bytesText(d.Bytes)
	if d.Parts > 1 {
		size += fmt.Sprintf(" in %d files", d.Parts)
	}
	row("Size", "%s, %s parameters", size, countText(d.Parameters))
	for i, t := range d.Types {
		name, note := "", ""
		if i == 0 {
			name = "Weights"
		}
		if !t.Supported {
			note = ", not supported"
		}
		row(name, "%-8s %8s in %s%s", t.Type, bytesText(t.Bytes), plural(t.Tensors, "tensor"), note)
	}
	if n := len(d.LayerBytes); n > 0 {
		total := int64(0)
		for _, b := range d.LayerBytes {
			total += b
		}
		row("Layers", "%d of %s to %s, %s together; %s outside", n, bytesText(slices.Min(d.LayerBytes)), bytesText(slices.Max(d.LayerBytes)), bytesText(total), bytesText(d.OutsideBytes))
	}
	if d.Experts > 0 {
		row("Experts", "%d in a layer, %d used by a token; %s together", d.Experts, d.UsedExperts, bytesText(d.ExpertBytes))
	}
	row("Context", "%d tokens; rope scaling: %s", d.Context, orNone(d.Rope))
	t := &d.Tokenizer
	row("Tokenizer", "%s, pre-tokenizer %s, %d tokens, begins with BOS: %s", known(t.Model), known(t.Pre), t.Size, yesNo(t.AddBOS))
	var special []string
	for role, text := range t.Special {
		special = append(special, fmt.Sprintf("%s %q", role, text))
	}
	slices.Sort(special)
	row("Special tokens", "%s", orNone(strings.Join(special, ", ")))
	switch {
	case !t.Template:
		row("Chat template", "none: give prompts as they are, with --raw")
	case t.TemplateError != "":
		row("Chat template", "cannot be used: %s", t.TemplateError)
	default:
		row("Chat template", "renders; tools: %s, thinking: %s", yesNo(t.Tools), yesNo(t.Thinking))
	}
	if len(d.Cache) > 0 {
		row("Cache", "%s", cacheText(d.Cache))
		for _, n := range cacheLengths {
			note := ""
			if n.tokens > int64(d.Context) {
				note = ", beyond the model's context"
			}
			row("", "%-4s tokens: %8s (%s in single precision)%s", n.name, bytesText(d.SessionBytes(n.tokens, runtime.KVF16)), bytesText(d.SessionBytes(n.tokens, runtime.KVF32)), note)
		}
	}
	if len(d.Unsupported) == 0 {
		row("Runs here", "yes")
	}
	for i, text := range d.Unsupported {
		name := ""
		if i == 0 {
			name = "Runs here"
			text = "no: " + text
		}
		row(name, "%s", text)
	}
}

// cacheText counts layers by their cache, in the order of their first layer.
func cacheText(kinds []string) string {
	count, order := map[string]int{}, []string{}
	for _, k := range kinds {
		if count[k]++; count[k] == 1 {
			order = append(order, k)
		}
	}
	var parts []string
	for _, k := range order {
		parts = append(parts, fmt.Sprintf("%s %s", plural(count[k], "layer"), k))
	}
	return strings.Join(parts, ", ")
}

// countText writes a number in three digits.
func countText(n uint64) string {
	for _, u := range []struct {
		name string
		of   float64
	}{{"T", 1e12}, {"B", 1e9}, {"M", 1e6}} {
		if float64(n) >= u.of {
			return fmt.Sprintf("%.3g %s", float64(n)/u.of, u.name)
		}
	}
	return fmt.Sprint(n)
}

// plural writes a number of things.
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
