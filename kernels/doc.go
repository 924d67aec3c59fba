// Package kernels is the arithmetic of Starling: weight block formats, quantised and dense matrix products, norms,
// rotary embedding, elementary functions, attention and the step of gated delta nets, all on plain slices.
//
// The Go code here is the specification of every number a peer computes. A faster variant is right only if it gives
// the same bits. Three rules make that possible:
//
//   - Every reduction has one written order, in the doc comment of the function that owns it. No result depends on how
//     many rows, outputs or query heads are computed together, or by whom.
//   - Every floating-point product is rounded by an explicit conversion before it meets an addition, because the Go
//     compiler may otherwise fuse x*y+z on some machines (a lint in this package's tests checks it). Fusing happens
//     only in [FMA], which rounds once.
//   - Integer sums are exact, so their order is free and is not part of the specification.
//
// Functions panic on slices that are too short and on other broken preconditions of the caller, with the values.
// Foreign bytes are checked by [NewMatrix] and [Matrix.CheckScales], and numbers by [Activations.Prepare] and
// [CheckFinite]; those return errors. The package starts no goroutines and keeps no state but the [Variant] in use.
//
// Variants are assembly for one kind of processor each, written by the generator in _asm and chosen at start. A function
// that has a faster variant calls it for the bulk of its work; the Go code remains the specification and the fallback.
package kernels

//go:generate go run -C _asm .
