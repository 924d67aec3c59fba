package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/starling-swarm/starling/node/control"
)

const (
	timelineWidth = 100 // characters of a line where there is no terminal
	timelineRows  = 48  // lines of the table
)

// terminalWidth returns how many characters fit in a line of f.
func terminalWidth(f *os.File) int {
	if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
		return w
	}
	return timelineWidth
}

// printTimeline draws what each peer of a run did when, and lists the chunks.
// Time begins when the decoder sent the first chunk.
func printTimeline(w io.Writer, r *control.Account, width int) error {
	hops := append(append([]control.StageAccount{}, r.Stages...), r.Decoder)
	end := r.Prefill
	for _, c := range r.Decoder.Timeline {
		end = max(end, c.Ended) // in the pipelined shape tokens of the answer walk the route, too
	}
	const label = 28
	cells := max(min(width, 160)-label-2, 20)
	fmt.Fprintf(w, "%s from the first chunk to the first token; a mark is %s\n", durationText(r.Prefill), durationText(end/time.Duration(cells)))
	fmt.Fprintln(w, "█ compute  ▒ held up, with input  · waiting for input  ═ sending cache rows  ─ until the decoder holds them")
	for i, h := range hops {
		who := "stage"
		if i == len(hops)-1 {
			who = "decoder"
		}
		fmt.Fprintf(w, "%-*s│%s│\n", label, fmt.Sprintf("%s %s %s", who, shortPeer(h.Peer), flagText(h.Layers)), computeBar(h.Timeline, cells, end))
		if bar := rowsBar(h.Timeline, cells, end); bar != "" {
			fmt.Fprintf(w, "%-*s│%s│\n", label, "", bar)
		}
	}
	fmt.Fprintf(w, "%-*s│%s│\n\n", label, "first token", mark(cells, end, r.Prefill))
	for _, h := range hops {
		fmt.Fprintf(w, "%s %s: %d chunks; computed %s, waited %s for input, %s for the next stage, %s for cache rows\n", shortPeer(h.Peer), layersText(&h.Layers),
			h.Chunks, durationText(h.Compute), durationText(h.WaitInput), durationText(h.WaitCredit), durationText(h.WaitRows))
	}
	fmt.Fprintln(w)
	return table(w, func(w io.Writer) { printChunks(w, hops) })
}

// printChunks lists the times of each chunk on each peer.
func printChunks(w io.Writer, hops []control.StageAccount) {
	fmt.Fprintln(w, "positions\tpeer\tinput here\tbegan\tended\trows sent\trows at the decoder")
	at := func(d time.Duration) string {
		if d == 0 {
			return "–"
		}
		return durationText(d)
	}
	most := 0
	for _, h := range hops {
		most = max(most, len(h.Timeline))
	}
	rows := 0
	for i := range most {
		for _, h := range hops {
			if i >= len(h.Timeline) {
				continue
			}
			if rows++; rows > timelineRows {
				continue
			}
			c := h.Timeline[i]
			fmt.Fprintf(w, "%d–%d\t%s\t%s\t%s\t%s\t%s\t%s\n", c.Start, c.Start+c.Count-1, shortPeer(h.Peer), at(c.Ready), at(c.Began), at(c.Ended), at(c.Pushed), at(c.Imported))
		}
	}
	if rows > timelineRows {
		fmt.Fprintf(w, "… and %d more lines: --json tells all\n", rows-timelineRows)
	}
}

// span is a stretch of time that is drawn as mark.
type span struct {
	from, to time.Duration
	mark     rune
}

// computeBar draws when a peer computed, was held up and waited for input.
func computeBar(chunks []control.ChunkTimes, cells int, end time.Duration) string {
	var spans []span
	free := time.Duration(0)
	for i, c := range chunks {
		if i > 0 {
			spans = append(spans, span{free, c.Ready, '·'})
		}
		spans = append(spans, span{max(c.Ready, free), c.Began, '▒'}, span{c.Began, c.Ended, '█'})
		free = c.Ended
	}
	return bar(spans, cells, end)
}

// rowsBar draws when a peer's cache rows were on their way; "" if none were.
func rowsBar(chunks []control.ChunkTimes, cells int, end time.Duration) string {
	var spans []span
	for _, c := range chunks {
		if c.Imported > 0 {
			spans = append(spans, span{max(c.Pushed, c.Ended), c.Imported, '─'})
		}
		if c.Pushed > 0 {
			spans = append(spans, span{c.Ended, c.Pushed, '═'})
		}
	}
	if len(spans) == 0 {
		return ""
	}
	return bar(spans, cells, end)
}

// bar draws spans; a cell has the mark that takes most of it, the later span's
// if equal.
func bar(spans []span, cells int, end time.Duration) string {
	line, most := make([]rune, cells), make([]float64, cells)
	for i := range line {
		line[i] = ' '
	}
	for _, s := range spans {
		from, to := position(s.from, cells, end), position(s.to, cells, end)
		for i := int(from); i < cells && float64(i) < to; i++ {
			if part := min(to, float64(i+1)) - max(from, float64(i)); part > 0 && part >= most[i] {
				line[i], most[i] = s.mark, part
			}
		}
	}
	return string(line)
}

// mark draws a moment.
func mark(cells int, end, at time.Duration) string {
	line := make([]rune, cells)
	for i := range line {
		line[i] = ' '
	}
	line[min(int(position(at, cells, end)), cells-1)] = '▲'
	return string(line)
}

// position returns where a time is, in cells: what others tell may lie outside.
func position(at time.Duration, cells int, end time.Duration) float64 {
	return min(max(float64(at)/float64(max(end, 1)), 0), 1) * float64(cells)
}
