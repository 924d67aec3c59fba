package runtime

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/starling-swarm/starling/kernels"
)

// SeamType is the number format in which the residual stream passes a cut of a profile. All are defined in kernels.Narrow.
type SeamType uint8

const (
	SeamF32  SeamType = iota // as it is: the default
	SeamBF16                 // bfloat16: 2 bytes an element
	SeamF16                  // IEEE half precision: 2 bytes, and finer; beyond ±65504 an error
	SeamQ8                   // blocks of 32 elements, 8 bits each and a common scale: 1.0625 bytes
)

var seamTypes = []kernels.Type{SeamF32: kernels.F32, SeamBF16: kernels.BF16, SeamF16: kernels.F16, SeamQ8: kernels.Q8_0}

var seamNames = []string{SeamF32: "f32", SeamBF16: "bf16", SeamF16: "f16", SeamQ8: "q8_0"}

// SeamTypes lists all, the most precise first.
func SeamTypes() []SeamType { return []SeamType{SeamF32, SeamF16, SeamBF16, SeamQ8} }

// String returns "f32", "bf16", "f16" or "q8_0".
func (t SeamType) String() string {
	if int(t) < len(seamNames) {
		return seamNames[t]
	}
	return fmt.Sprintf("SeamType(%d)", uint8(t))
}

// Bytes is the size of one position's row of width elements.
func (t SeamType) Bytes(width int) int { return kernels.NarrowBytes(seamTypes[t], width) }

// Append appends rows of width elements to dst, each by itself. Of rows that a Step computed up to a cut of its sequence's
// profile, and with that profile's type, Decode gives back all bits.
func (t SeamType) Append(dst []byte, rows []float32, width int) []byte {
	size := t.Bytes(width)
	for ; len(rows) > 0; rows = rows[width:] {
		dst = slices.Grow(dst, size)[:len(dst)+size]
		kernels.Narrow(dst[len(dst)-size:], rows[:width], seamTypes[t])
	}
	return dst
}

// Decode reads rows that Append made; data is whole rows. What is not finite is found by Run.
func (t SeamType) Decode(data []byte, width int) []float32 {
	size := t.Bytes(width)
	rows := make([]float32, len(data)/size*width)
	for at := 0; at < len(rows); at += width {
		kernels.Widen(rows[at:at+width], data, seamTypes[t])
		data = data[size:]
	}
	return rows
}

// round is Decode of Append in place, by way of scratch; false where a number exceeds the format.
func (t SeamType) round(row []float32, scratch []byte) bool {
	if kernels.Narrow(scratch, row, seamTypes[t]) >= 0 {
		return false
	}
	kernels.Widen(row, scratch, seamTypes[t])
	return true
}

// roundSeams rounds the residual streams of rows that have passed layer cut−1, of sequences whose profile has that cut.
func (m *Model) roundSeams(cut int, rows []row) error {
	if !slices.ContainsFunc(rows, func(r row) bool { return r.seq.profile.SeamAt(cut) != SeamF32 }) {
		return nil
	}
	m.buf.seams = sized(m.buf.seams, len(rows)*SeamF32.Bytes(m.cfg.Width))
	return m.eachRow(cut, rows, roundedSeam, func(p *pass, r int) bool {
		row, size := &p.rows[r], SeamF32.Bytes(p.m.cfg.Width)
		t := row.seq.profile.SeamAt(p.l)
		return t == SeamF32 || t.round(row.h, p.m.buf.seams[r*size:(r+1)*size])
	})
}

// roundedSeam is what a *NonFiniteError is about where a number of the residual stream is beyond the type of a seam.
const roundedSeam = "rounded seam"

// ParseSeam reads a seam as people write it: a type, and behind an @ the layers before which the residual stream is rounded,
// as in "q8_0@10,20"; without them it is for a plan to say where.
func ParseSeam(text string) (SeamType, []int, error) {
	name, list, at := strings.Cut(text, "@")
	t := slices.Index(seamNames, name)
	if t < 0 {
		return 0, nil, fmt.Errorf("seam type %q is not known: use f32, bf16, f16 or q8_0", name)
	}
	if !at {
		return SeamType(t), nil, nil
	}
	var cuts []int
	for _, word := range strings.Split(list, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 || len(cuts) > 0 && n <= cuts[len(cuts)-1] {
			return 0, nil, fmt.Errorf("seam %q: behind the @ come layers, ascending, as in %s@10,20", text, name)
		}
		cuts = append(cuts, n)
	}
	return SeamType(t), cuts, nil
}
