package session

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/starling-swarm/starling/node/control"
)

// maxRows is how many bytes of rows are asked for at once; a control.Probe's limit.
const maxRows = 64 << 20

// Hidden returns the residual stream of the history's positions [first, last) at boundaries between layers: [last−first][Width] for each
// of layers, row by row. Boundary 0 is the embedding that layer 0 reads, boundary l what layer l reads, and boundary NumLayers what the
// last layer leaves, before the final norm. Positions before first are computed where no cache has them, those from first on in
// any case.
func (s *Session) Hidden(ctx context.Context, layers []int, first, last int) ([][]float32, error) {
	asked := slices.Compact(slices.Sorted(slices.Values(layers)))
	if len(asked) == 0 || asked[0] < 0 || asked[len(asked)-1] > s.model.NumLayers {
		return nil, fmt.Errorf("hidden states at boundaries %v: the model has 0 to %d; name at least one", layers, s.model.NumLayers)
	}
	got := map[int][]float32{}
	err := s.probe(ctx, control.Probe{First: first, Last: last, Layers: asked}, s.model.Width, func(r *control.Rows, row []float32) {
		got[r.Layer] = append(got[r.Layer], row...)
	})
	if err != nil {
		return nil, err
	}
	rows := make([][]float32, len(layers))
	for i, l := range layers {
		rows[i] = got[l]
	}
	return rows, nil
}

// Logits returns those of the history's positions [first, last): [last−first][Vocab], row by row, each what the model says of the
// token at the next position, before temperature and all else.
func (s *Session) Logits(ctx context.Context, first, last int) ([]float32, error) {
	var got []float32
	err := s.probe(ctx, control.Probe{First: first, Last: last, Logits: true}, s.model.Vocab, func(_ *control.Rows, row []float32) { got = append(got, row...) })
	return got, err
}

// probe asks for rows in as many steps as their size needs; each goes on from the cache of the one before.
func (s *Session) probe(ctx context.Context, p control.Probe, width int, on func(r *control.Rows, row []float32)) error {
	if n := s.Len(); p.First < 0 || p.Last <= p.First || p.Last > n {
		return fmt.Errorf("positions [%d, %d) of a history of %d tokens", p.First, p.Last, n)
	}
	size := 4 * width
	if len(p.Layers) > 0 {
		size *= len(p.Layers)
	}
	if size > maxRows {
		return fmt.Errorf("a position's rows take %d bytes, at most %d: ask for fewer boundaries at once", size, maxRows)
	}
	for part, last := p, p.Last; part.First < last; part.First = part.Last {
		part.Last = min(part.First+maxRows/size, last)
		var wrong error
		err := s.run(ctx, part.Last, control.RunRequest{PromptOnly: true, Probe: &part}, func(ev Event) bool {
			if ev.Rows == nil {
				return true
			}
			if ev.Rows.Count < 1 || len(ev.Rows.Data) != 4*width*ev.Rows.Count {
				wrong = errors.New("the node's rows have another width; is it another version of starling?")
				return false
			}
			on(ev.Rows, floats(ev.Rows.Data))
			return true
		})
		if err != nil || wrong != nil {
			return errors.Join(err, wrong)
		}
	}
	return nil
}

// floats reads little-endian float32s.
func floats(b []byte) []float32 {
	x := make([]float32, len(b)/4)
	for i := range x {
		x[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return x
}
