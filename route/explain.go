package route

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
)

// String is p in one line.
func (p Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:", p.Shape)
	for _, s := range p.Stages {
		fmt.Fprintf(&b, " %s %s →", s.Peer, s.Layers)
	}
	fmt.Fprintf(&b, " %s %s decodes", p.Decoder, p.DecoderLayers)
	return b.String()
}

// Explain is p as the table that `starling plan` prints: ranges, predicted times and bytes, who sees what, and one
// line per peer. It ends with a newline.
func (p Plan) Explain() string {
	var b strings.Builder
	c := p.Predicted
	fmt.Fprintf(&b, "%s plan for %d prompt tokens and %d new ones, in chunks of %d", p.Shape, p.PromptTokens, p.NewTokens, p.Chunk)
	if p.LastChunk < p.Chunk {
		fmt.Fprintf(&b, ", the last ones of %d", p.LastChunk)
	}
	b.WriteString("\n\n")
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\tpeer\tlayers\tcompute/chunk\tsend/chunk\tseams\tKV\tsees")
	for i, r := range c.Ranges {
		last := i == len(c.Ranges)-1
		name, send := fmt.Sprint(i+1), secondsText(r.SendSeconds)
		if last {
			name, send = "decoder", "–"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", name, r.Peer, r.Layers, secondsText(r.ComputeSeconds), send,
			bytesText(float64(r.SeamBytes)), bytesText(float64(r.KVBytes)), p.sees(i, last))
	}
	w.Flush()
	fmt.Fprintf(&b, "\nfirst token  %s  (prefill %s, last KV %s, head %s)\n", secondsText(c.FirstTokenSeconds), secondsText(c.PrefillSeconds), secondsText(c.KVTailSeconds), secondsText(c.HeadSeconds))
	if p.NewTokens > 1 {
		fmt.Fprintf(&b, "then         %s per token, %.3g tokens/s\n", secondsText(c.TokenSeconds), 1/c.TokenSeconds)
	}
	fmt.Fprintf(&b, "total        %s", secondsText(c.TotalSeconds))
	if c.RiskSeconds > 0 {
		fmt.Fprintf(&b, "  (%s of it: what losses are expected to cost)", secondsText(c.RiskSeconds))
	}
	b.WriteString("\n")
	fmt.Fprintf(&b, "slowest      %s, %s per chunk\n", c.Bottleneck, secondsText(c.PeriodSeconds))
	if p.Draft != "" {
		fmt.Fprintf(&b, "guesses      %s, at the decoder\n", p.Draft)
	}
	if p.KV != "" {
		fmt.Fprintf(&b, "numerics     KV %s, seams %s\n", p.KV, p.Seam)
	}
	if len(p.Stages) > 0 {
		fmt.Fprintf(&b, "over links   %s of seams, %s of KV\n", bytesText(float64(c.SeamBytes)), bytesText(float64(c.KVBytes)))
		for _, r := range c.Ranges {
			if l := r.Hop; l != nil {
				fmt.Fprintf(&b, "link         %s → %s  %s/s, round trip %s (%s)\n", l.From, l.To, bytesText(l.BytesPerSec), secondsText(l.RTT), cmp.Or(l.Basis, "throughput not measured"))
			}
		}
		if p.Shape == Pipelined {
			fmt.Fprintf(&b, "note         %s\n", p.pushText())
		}
	}
	b.WriteString("\n")
	for _, r := range p.Reasons {
		mark := "–"
		if r.Used {
			mark = "+"
		}
		name := r.Peer
		if !plain(name) {
			name = strconv.QuoteToASCII(name)
		}
		fmt.Fprintf(&b, "%s %s  %s\n", mark, name, r.Text)
	}
	return b.String()
}

// pushText says what a loss means to a pipelined plan, and what it costs that it means no more.
func (p Plan) pushText() string {
	total := p.Predicted.TotalSeconds
	switch {
	case p.KVToDecoder:
		return fmt.Sprintf("the decoder gets everyone's KV, which takes %s of the total (%.3g %%): who takes a lost peer's place goes on from there",
			secondsText(p.PushSeconds), 100*p.PushSeconds/total)
	case p.PushFault != "":
		return fmt.Sprintf("the decoder doesn't get everyone's KV (%s): losing a peer means replaying the prompt", p.PushFault)
	}
	return fmt.Sprintf("the decoder doesn't get everyone's KV, which would take %s more (%.3g %%): losing a peer means replaying the prompt",
		secondsText(p.PushSeconds), 100*p.PushSeconds/total)
}

// sees says what range i learns of the prompt. A layer server can recover the text from hidden states; nothing here
// says otherwise.
func (p Plan) sees(i int, decoder bool) string {
	switch {
	case decoder && p.KVToDecoder:
		return "the text, everyone's KV"
	case decoder:
		return "the text"
	case i == 0:
		return "token IDs"
	}
	return "seams"
}

// Sight is what one peer of a plan learns of the prompt.
type Sight struct{ Peer, What string }

// Sees says who learns what, in the order of the layers, the decoder last.
func (p Plan) Sees() []Sight {
	var list []Sight
	for i, s := range p.Stages {
		what := "hidden states and KV of " + s.Layers.String()
		if i == 0 {
			what = "token IDs, " + what
		}
		list = append(list, Sight{s.Peer, what})
	}
	what := "the text"
	switch {
	case p.KVToDecoder:
		what += ", hidden states and everyone's KV"
	case p.DecoderLayers.Len() > 0:
		what += ", hidden states and KV of " + p.DecoderLayers.String()
	default:
		what += " and hidden states"
	}
	return append(list, Sight{p.Decoder, what})
}

// secondsText writes a time in three digits and a fitting unit.
func secondsText(s float64) string {
	switch {
	case s == 0:
		return "0"
	case s < 0.001:
		return fmt.Sprintf("%.3g µs", s*1e6)
	case s < 1:
		return fmt.Sprintf("%.3g ms", s*1e3)
	case s < 100:
		return fmt.Sprintf("%.3g s", s)
	case s < 1e9:
		n := int64(math.Round(s))
		if n < 3600 {
			return fmt.Sprintf("%dm%02ds", n/60, n%60)
		}
		return fmt.Sprintf("%dh%02dm", n/3600, n%3600/60)
	}
	return fmt.Sprintf("%.3g s", s)
}

// bytesText writes a size in three digits and a decimal unit.
func bytesText(n float64) string {
	units := []string{"B", "kB", "MB", "GB", "TB", "PB", "EB"}
	i := 0
	for n >= 999.5 && i < len(units)-1 {
		n /= 1000
		i++
	}
	return fmt.Sprintf("%.3g %s", n, units[i])
}
