package node

import (
	"slices"

	"github.com/starling-swarm/starling/runtime"
)

const (
	lastChunks = 3 // of equal size end a prompt, see cutPrompt
	chunkStep  = 8 // larger chunks have a multiple of so many rows, as the kernels' tiles do

	// attnShare is what an operation of attention costs, in those of matrices: it is a float32 one, theirs are of bytes. With AVX2,
	// one thread did 73e9 a second of the former and 134e9 of the latter (SmolLM2, Q4_1, 64 rows behind 4,096).
	attnShare = 2
)

// cutPrompt cuts positions [start, end) into chunks that travel a route, and returns their sizes in order. None has more than most
// rows, the last ones have last.
//
// A route's parts compute side by side, so where they are equally fast a prefill takes as long as one part needs for all chunks, and
// for each further part as long as the longest chunk takes there; and each chunk costs something beside its rows. Hence
//
//   - in the middle of the prompt a chunk has most rows, and behind it most · cost(middle) / cost(its end), so that it takes no
//     longer: a row's cost grows with the positions that it attends to;
//   - at the start it has at most a third of the rows before its end, but at least most/2: so the parts behind a first one that is
//     faster begin early, and none of the later chunks is much longer than the one before it;
//   - at the end sizes halve down to last, and lastChunks chunks have that. When the seam of the last one comes, the decoder has taken up the
//     seam two before it (maxAhead), so what it still has to compute then, however far it is behind, is less than two of these;
//   - before those, chunks end at all multiples of every, unless it is 0: of tails the decoder gets what they are where chunks end.
func cutPrompt(c runtime.Config, start, end, most, last, every int) []int {
	var sizes []int
	middle, small := rowCost(c, (start+end)/2), min(last, most)
	for end > start && small > 0 {
		n := max(most/2, (end-start)/3)
		if cost := rowCost(c, end); cost > middle {
			n = min(n, int(float64(most)*middle/cost))
		}
		if n = min(n, most); n > chunkStep {
			n -= n % chunkStep
		}
		n = min(max(n, last), small, end-start)
		if every > 0 && len(sizes) >= lastChunks && (end-1)/every*every > start {
			n = evenly(end-(end-1)/every*every, n)
		}
		sizes = append(sizes, n)
		end -= n
		if len(sizes) >= lastChunks {
			small = min(2*small, most)
		}
	}
	slices.Reverse(sizes)
	return sizes
}

// evenly returns how many of so many rows go together where most may, and all such chunks are to be about as long.
func evenly(rows, most int) int {
	chunks := (rows + most - 1) / most
	n := (rows + chunks - 1) / chunks
	return min((n+chunkStep-1)/chunkStep*chunkStep, most, rows)
}

// chunkEnds returns at which multiples chunks of at most so many rows are to end, so that the decoder has snapshots of all tails there,
// those that it is sent and its own; 0: anywhere.
func (d *decoding) chunkEnds(most int) int {
	every := d.snapshotEvery()
	for every > 0 && every < most {
		every *= 2
	}
	return every
}

// snapshotEvery returns at which multiples the caches keep snapshots of the tails that the decoder is sent; 0: none are sent.
func (d *decoding) snapshotEvery() int {
	if d.plan == nil || !d.plan.PushKV {
		return 0
	}
	return d.config.Snapshots(d.seq.Profile().KV, d.seq.Capacity()).Every
}

// nextStop returns where a chunk of decoded tokens that begins at a position ends at the latest, so that the decoder has a snapshot there; 0:
// anywhere. Prompts are cut by chunkEnds.
func (d *decoding) nextStop(at int) int {
	every := d.snapshotEvery()
	if every == 0 || at < int(d.plan.Known) {
		return 0
	}
	return (at/every + 1) * every
}

// bringsTails reports whether the decoder is sent the tails behind chunk [start, end). They may be some MiB each, and the next ones take their
// place: so tokens' are sent at snapshots only, and behind the last one before the decoder goes on alone.
func (d *decoding) bringsTails(start, end int) bool {
	every := d.snapshotEvery()
	return every > 0 && (start < int(d.plan.Known) || end%every == 0 || d.grown || end == d.routeEnd)
}

// rowCost returns what computing the row at a position costs in all layers, in operations of matrices.
func rowCost(c runtime.Config, pos int) float64 {
	cost := 0.0
	for l, flops := range c.LayerFlops {
		seen := pos
		switch kept := c.Cache[l]; {
		case kept.Heads == 0:
			seen = 0
		case kept.Window > 0:
			seen = min(pos, kept.Window)
		}
		cost += flops + attnShare*c.AttnFlops*float64(seen)
	}
	return cost
}
