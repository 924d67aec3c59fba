// Package route decides which peer runs which layers for one prompt, and who decodes.
//
// It is pure: values in, a [Plan] out. It has no clock and no sockets, and it knows no architecture: a [Model]
// is bytes, FLOPs, cache bytes and legal cuts as numbers; a [Peer] is what a node offers and how fast it was measured.
// The same offers, links and request give the same plan on every machine, in whatever order they are handed over.
//
// # Shapes
//
//	local      one peer holds everything and does everything
//	across     stages prefill side by side; the decoder, which holds the whole model, receives
//	           every KV row as it is made and then decodes alone
//	pipelined  the decoder holds its own layers and the head only; decoded tokens walk the route too
//
// A route is a list of remote stages, ascending and contiguous from layer 0, then the decoder's own range, which may
// be empty but for the head. A peer runs any legal sub-range of what it holds, and appears at most once.
//
// # Cost
//
// All times are seconds. T is the number of prompt tokens, N of new ones, c the chunk (c ≤ T), d the decoder.
// For a peer p and layers r: F(r) FLOPs per token, W(r) weight bytes, K(r) cache bytes per token; q(p) = 1 + load is
// the queueing factor; rate(p,n) = min(up of p, down of n, link p→n); rtt/2 is a one-way trip.
//
//	misses   M(p,w)    = min(w, 2·(w − memory))/disk where w bytes of weights don't fit in p's memory, else 0
//	compute  C(p,r)    = q·(W/decode + M(p,W) + c·F/prefill) + PassOverhead   (a pass reads and unpacks the weights once, whatever its rows)
//	own      C(d)      = C(d,r) + q·ReceiveReads·c·(seam + ΣK)/decode       (all that others send comes to the decoder)
//	sending  X(p,r,n)  = max(c·(seam+K)/up, c·seam/rate(p,n), c·K/rate(p,d)),  or c·(seam+K)/rate(p,d) when n is d
//	waiting  Z(p,r)    = (C + c·K/rate(p,d) + rtt(p,d))/2, where K goes to d: two chunks may be unacknowledged
//	hop      H(p,n)    = rtt(p,n)/2 + c·seam/rate(p,n)
//	period   S         = max over stages of C, X and Z, over the decoder of C(d) and c·(seam+ΣK)/down(d)
//	handing  G(p,r)    = rtt(d,p) + (h·K + tails)/rate(d,p) where d holds the rows of the first h tokens, else 0, and for a stage that has had r before
//	fill               = rtt(d,first)/2 + Σ over stages (G + C + H) + C(d)  (what is behind the last seam is part of it)
//	prefill            = fill + ((T − h)/c − 1)·S
//	KV tail            = max(max over stages c·K/rate(p,d), c·ΣK/down(d))    (the last chunk's cache rows)
//	head               = q(d)·max(headFLOPs/prefill, headBytes/decode)
//	first token        = prefill + KV tail + head
//	reading  Y(p,r)    = q·((W + R)/decode + M(p,W) + g·F/prefill) + PassOverhead   (the decoder's with the head in W and F)
//	step, local        = Y(d, all layers)
//	step, pipelined    = rtt(d,first)/2 + Σ over stages walk + Y(d,r)
//	         walk      = max(Y + rtt(p,n)/2 + (1+g)·seam/rate(p,n), (1+g)·K/rate(p,d))
//	token              = step/(1 + a)
//	undisturbed U      = first token + (N − 1)·token
//	risk               = λ(d)·U·(RecoverySeconds + U/2) + Σ over stages λ(p)·exposed
//	         exposed   = RecoverySeconds·(U − (N − 1)·token) in the across shape, RecoverySeconds·U in the pipelined one, or
//	                     U·(RecoverySeconds + U/2) where its cache rows stay with the stages
//	total              = U + risk
//
// g guesses are computed with each decoded token, and a of them are right ([Request.Guesses], [Request.Accepted]); h is [Request.HeldTokens]. λ is failures per second.
// docs/planning.md gives the reasons.
//
// R(r) is the cache that a decoded token reads, each layer's K times T + N/2 or its KVPositions.
// K counts in sending, tail and walk only where cache rows go to the decoder: always in the across shape; in the
// pipelined one when the decoder has memory for them and they cost little (see Choice; without them, losing a stage means
// replaying the prompt). [Plan.PushSeconds] is the difference that they make. What a layer keeps beside rows is in K, spread over the tokens
// that it goes with: a chunk's, and in walk [Model.TailEvery].
// A decoder with no layers of its own has C(d,r) = 0. The asking user's link to the decoder is not part of the cost.
//
// Chunks: c is the size of most. Decoders make a prompt's first and last ones smaller; [Plan.LastChunk] is how small. So that the
// first token comes soon after the last seam, that is the least of leastChunk, twice it, … on which every stage computes for as long
// as it takes until the decoder has its rows and the stage hears of that (Z ≤ C), and as a credit for a seam needs (rtt(p,n) ≤ C).
// Smaller ones wait for acknowledgements, and come no sooner.
//
// Memory: a stage needs each layer's K times T + N, or its KVPositions, of free cache; the decoder needs that for all layers wherever cache
// rows go to it, and for its own otherwise.
//
// # Choice
//
// The cheapest total wins, with two preferences inside stated margins. The asking user's own machine decodes when
// [Request.PreferSelf] is set and that costs at most [SelfMargin] more. Then what depends least on others is taken when
// it costs at most [RobustMargin] more than the cheapest: local, then across, then pipelined with the cache at the
// decoder, then without. Equal costs go to fewer stages, then to the lowest peer IDs.
//
// # Search
//
// With up to [ExactPeers] usable peers: for every decoder, chunk size and shape, labels (cost so far, slowest stage so far, KV tail so far,
// peers used) are pushed over the legal cuts from layer 0 on. A label is dropped when another at the same position and peer, with no peer
// that it lacks, can't end up dearer whatever follows; and when its lower bound (every remaining layer by whoever is cheapest and has room,
// the rest of the work shared evenly) exceeds the best plan known. So the result is the optimum over the chunk sizes tried, unless a very
// large problem exhausts a fixed amount of work.
//
// With more: the likeliest decoders each get a pool of the peers by whom a layer costs least. What makes a route good is mostly its period. Where
// shorter ones than a given one don't count and much longer ones aren't allowed, every peer has a longest range from each position, and
// what remains is a shortest path over positions and peers, with several paths kept to each. The first period is a guess, as if layers could be
// divided at will; the next ones follow what was found. Up to 200 peers are planned for with every chunk size, larger crowds with the one that was
// best for the first decoder.
// A request that forces peers or cuts is planned by labels, a bounded number per position and peer, over a pool, and local search over all
// peers improves what they find.
package route
