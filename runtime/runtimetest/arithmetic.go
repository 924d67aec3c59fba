package runtimetest

import (
	"context"
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/starling-swarm/starling/runtime"
)

// The toy's numbers are integers of at most 20 bits in the residual stream, which float32 holds exactly, and words of 10 bits
// in cache rows, which are finite numbers in every KV type. mix is the finaliser of SplitMix64.
func mix(h, v uint64) uint64 {
	h = (h ^ v) * 0x9E3779B97F4A7C15
	h = (h ^ h>>30) * 0xBF58476D1CE4E5B9
	h = (h ^ h>>27) * 0x94D049BB133111EB
	return h ^ h>>31
}

// compute runs claimed steps one after the other.
func (e *executor) compute(ctx context.Context, steps []*runtime.Step) error {
	w := e.cfg.Width
	for i, s := range steps {
		h := make([]float32, s.N*w)
		for r := range s.N {
			for d := range w {
				at := r*w + d
				if s.Layers.First > 0 {
					h[at] = s.Seam[at]
				} else {
					h[at] = float32(mix(mix(e.seed, uint64(s.Tokens[r])), uint64(d)) & 0xfffff)
				}
				if math.IsNaN(float64(h[at])) || math.IsInf(float64(h[at]), 0) {
					return &runtime.NonFiniteError{Step: i, What: "seam", Layer: s.Layers.First, Pos: s.Start + r}
				}
			}
		}
		s.Probed = s.Probed[:0]
		for l := s.Layers.First; l < s.Layers.Last; l++ {
			probe(s, l, h)
			if err := e.wait(ctx, s.N); err != nil {
				return err
			}
			for r := range s.N {
				if e.fake.Fail != nil {
					if err := e.fake.Fail(l, s.Start+r, h[r*w:(r+1)*w]); err != nil {
						return err
					}
				}
				e.layer(l, s.Start+r, s.Seq.(*sequence), h[r*w:(r+1)*w])
			}
			if t := s.Seq.Profile().SeamAt(l + 1); t != runtime.SeamF32 {
				h = t.Decode(t.Append(nil, h, w), w)
			}
		}
		probe(s, s.Layers.Last, h)
		if err := ctx.Err(); err != nil {
			return err
		}
		e.results(s, h)
	}
	return nil
}

// probe copies h if the step wants it at boundary l.
func probe(s *runtime.Step, l int, h []float32) {
	if slices.Contains(s.Probe, l) {
		s.Probed = append(s.Probed, slices.Clone(h))
	}
}

// wordBytes is how many bytes of a cache row a number takes.
func wordBytes(t runtime.KVType) int {
	if t == runtime.KVF32 {
		return 4
	}
	return 2
}

// wait lets the time pass that n rows take in a layer.
func (e *executor) wait(ctx context.Context, n int) error {
	if e.fake.Delay <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(time.Duration(n) * e.fake.Delay)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// layer appends the position's cache row, a hash of h, and replaces h by a hash of all rows up to it and of h.
func (e *executor) layer(l, pos int, s *sequence, h []float32) {
	sum := mix(e.seed, uint64(l))
	for _, x := range h {
		sum = mix(sum, uint64(math.Float32bits(x)))
	}
	var row []byte
	for i := range s.rowBytes() / wordBytes(s.profile.KV) {
		v := mix(sum, uint64(i)) & 0x3ff
		if s.profile.KV == runtime.KVF32 {
			row = binary.LittleEndian.AppendUint32(row, math.Float32bits(float32(v)))
		} else {
			row = binary.LittleEndian.AppendUint16(row, uint16(v))
		}
	}
	s.add(l, row)
	all := s.until(l, pos+1)
	for len(all) > 0 {
		sum = mix(sum, uint64(binary.LittleEndian.Uint16(all)))
		all = all[2:]
	}
	for d := range h {
		h[d] = float32(mix(sum, uint64(d)) & 0xfffff)
	}
}

// results fills in Out and Logits. Logits are multiples of 2^−10 in [−8, 8); end-of-generation tokens have −100, but
// from StopAt on the end-of-sequence token has 100.
func (e *executor) results(s *runtime.Step, h []float32) {
	if s.Layers.Last < e.cfg.Layers || s.KeepHidden {
		s.Out = append(s.Out[:0], h...)
	} else {
		s.Out = nil
	}
	s.Logits = s.Logits[:0]
	for _, r := range s.LogitRows {
		sum := mix(e.seed, math.MaxUint64)
		for _, x := range h[r*e.cfg.Width : (r+1)*e.cfg.Width] {
			sum = mix(sum, uint64(math.Float32bits(x)))
		}
		logits := make([]float32, e.cfg.Vocab)
		for id := range logits {
			logits[id] = float32(int(mix(sum, uint64(id))&0x3fff)-0x2000) / 1024
			if e.tok.IsEOG(int32(id)) {
				logits[id] = -100
			}
		}
		if eos := e.tok.EOS(); eos >= 0 && e.fake.StopAt > 0 && s.Start+r >= e.fake.StopAt {
			logits[eos] = 100
		}
		s.Logits = append(s.Logits, logits)
	}
}
