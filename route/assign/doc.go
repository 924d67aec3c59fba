// Package assign decides which layers of a model a volunteer holds: where it joins, and when it moves.
//
// It is pure like package route: it has no clock, no sockets and draws nothing at random; callers hand those in. Every node runs it
// for itself, from the offers that it knows; nobody is told by anybody.
//
// # Coverage
//
// A peer of F FLOP/s that holds layers r prefills F / flops(r) tokens a second, whichever layer one looks at. A layer's coverage is the sum of that over
// its holders, and the model's prefill throughput can't exceed the coverage of its worst layer. Peers that are
// on their way (a [Peer] with Joining set: a claim) count as if they were there.
//
// # Joining
//
// A window is a range between legal cuts that fits the volunteer's budget and is part of no longer one: so ranges are long, and routes short.
// [Choose] takes the window whose coverages, sorted, come first: the one with the worst layer, of those the one with the worst second layer, and so on,
// where coverages within a step of [Gain] are alike.
// Of equals it takes the one of which most bytes are on the disk, then the one that is worse in smaller steps, then the one that the volunteer's own order puts first,
// so that many that begin at once don't all begin at layer 0.
//
// # Moving
//
// Moving costs a download, so it must be worth it. Let w be the coverage of the worst layer. A layer is thin when its coverage is below
// [Gain]·w, or when nobody holds it. A move is taken only if
//
//	fewer layers are thin after it, by the same measure, and
//	every layer that it leaves has another holder that serves and comes before this one by [Peer.ID].
//
// The second rule lets the holder with the first ID keep a layer, whoever else leaves. So no layer loses all its holders by moves, even where
// all move at the same time and each knows different offers, as long as what they know of holders is true. The first bounds the moves: each takes away
// a thin layer, and when there are none the worst coverage has grown by Gain.
//
// A [Watch] makes moves rare: the same need must be seen [Patience] times in a row, and then one volunteer in [Turns] acts, by lot. Who acts
// claims its new range first; the others count that and find no need any more.
package assign
