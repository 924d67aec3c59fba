package kernels

import (
	"encoding/binary"
	"unsafe"
)

// What this machine can do at best with the instructions of the variant in use, so that a measured speed can be given as
// a fraction of it. Callers bring the clock; nothing here computes a model's number.

// Operations of one round of [PeakInt8] and [PeakF32]. A multiplication and an addition are two.
const (
	PeakInt8Ops = 4096
	PeakF32Ops  = 1024
)

// limitArgs are the arguments of the loops that reach the machine's limits. Their offsets are known to the assembly.
type limitArgs struct {
	p   *byte    // read: n bytes, a positive multiple of 256
	n   uint64   // bytes, or rounds of a peak, positive
	sum [64]byte // read: out, bytes whose words' exclusive or is that of all words read
}

// readChunk is what the assembly reads at a time.
const readChunk = 256

// ReadLoop reads every byte of b once, in order, with the widest loads of the variant in use, and returns the exclusive
// or of its little-endian 64-bit words (zeros follow the last byte): on memory larger than the caches it takes as long
// as any code needs at least to read as much on one thread.
func ReadLoop(b []byte) uint64 {
	var x uint64
	if n := len(b) / readChunk * readChunk; active.read != nil && n > 0 {
		a := limitArgs{p: unsafe.SliceData(b), n: uint64(n)}
		active.read(&a)
		x, b = xorWords(a.sum[:]), b[n:]
	}
	return x ^ xorWords(b)
}

// xorWords is the specification of ReadLoop.
func xorWords(b []byte) uint64 {
	var x0, x1, x2, x3 uint64
	for ; len(b) >= 32; b = b[32:] {
		x0 ^= binary.LittleEndian.Uint64(b)
		x1 ^= binary.LittleEndian.Uint64(b[8:])
		x2 ^= binary.LittleEndian.Uint64(b[16:])
		x3 ^= binary.LittleEndian.Uint64(b[24:])
	}
	var last [32]byte
	copy(last[:], b)
	for i := 0; i < len(last); i += 8 {
		x0 ^= binary.LittleEndian.Uint64(last[i:])
	}
	return x0 ^ x1 ^ x2 ^ x3
}

// PeakInt8 multiplies and adds 8-bit integers in registers only, rounds times [PeakInt8Ops] operations: the rate that no
// quantised product can exceed. AVX2 has no 8-bit product with 32-bit sums, so there it is VPMADDUBSW, each result added
// by VPADDW, and NEON's is SMLAL to 16-bit sums, although real sums must be widened every few steps; elsewhere it is the
// variant's own instruction, VPDPBUSD, SDOT or SMMLA, and without assembly a loop in Go.
func PeakInt8(rounds int) {
	switch {
	case rounds <= 0:
	case active.peakInt8 != nil:
		active.peakInt8(&limitArgs{n: uint64(rounds)})
	default:
		peakInt8Go(rounds)
	}
}

// PeakF32 is PeakInt8 for fused multiplications and additions of float32, rounds times [PeakF32Ops] operations. The
// generic variant has no instruction for them, so there it is the inner loop of the dense product.
func PeakF32(rounds int) {
	switch {
	case rounds <= 0:
	case active.peakF32 != nil:
		active.peakF32(&limitArgs{n: uint64(rounds)})
	default:
		var x [PeakF32Ops / 2]float32
		for i := range x {
			x[i] = 1 // sums that are zero or denormal take longer
		}
		for range rounds {
			var sum lanes
			fmaLanes(&sum, x[:], x[:])
		}
	}
}

// peakInt8Go is PeakInt8 in Go. Its sum goes nowhere, which the compiler does not see.
//
//go:noinline
func peakInt8Go(rounds int) int32 {
	var w, a [64]int8
	var s0, s1, s2, s3 int32
	for range rounds * (PeakInt8Ops / 2 / len(w)) {
		for i := 0; i < len(w); i += 4 {
			s0 += int32(w[i]) * int32(a[i])
			s1 += int32(w[i+1]) * int32(a[i+1])
			s2 += int32(w[i+2]) * int32(a[i+2])
			s3 += int32(w[i+3]) * int32(a[i+3])
		}
	}
	return s0 + s1 + s2 + s3
}
