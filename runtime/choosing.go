package runtime

import (
	"math"
	"slices"

	"github.com/starling-swarm/starling/kernels"
)

// choosing is what is left to choose from: candidates in order. While it is the whole vocabulary, only as many are put in
// order as somebody looks at.
//
//	list = the first len(list) candidates; all of them if whole
//	list[i].p = Exp(round(round(list[i].logit − largest) / t))
type choosing struct {
	logits  []float32 // of the vocabulary; −∞: no candidate
	list    []candidate
	settled bool    // the candidates are list, rather than what logits has
	whole   bool    // list has all candidates
	largest float32 // logit of the first candidate
	t       float32
	depth   float32 // list has the logits down to so far below the largest, as multiples of t
}

// settle makes list all there is.
func (c *choosing) settle(list []candidate) {
	c.list, c.settled, c.whole = list, true, true
	c.largest = list[0].logit
	c.weigh(1)
}

// weigh sets the temperature that p are for.
func (c *choosing) weigh(t float32) {
	c.t = t
	if !c.settled {
		c.list, c.whole, c.depth = nil, false, 0
		return
	}
	weigh(c.list, c.largest, t)
}

// weigh computes p of candidates.
func weigh(list []candidate, largest, t float32) {
	var p [256]float32
	for at := 0; at < len(list); at += len(p) {
		some := list[at:min(at+len(p), len(list))]
		for i := range some {
			p[i] = (some[i].logit - largest) / t
		}
		kernels.Exps(p[:len(some)], p[:len(some)])
		for i := range some {
			some[i].p = p[i]
		}
	}
}

// has reports whether there is a candidate i, and makes sure that list has it.
func (c *choosing) has(i int) bool {
	for i >= len(c.list) && !c.whole {
		c.reach()
	}
	return i < len(c.list)
}

// at returns candidate i; has(i).
func (c *choosing) at(i int) candidate {
	c.has(i)
	return c.list[i]
}

// reach makes list longer. How far does not matter: a longer list begins with the shorter one.
func (c *choosing) reach() {
	const first, last = 8, 16 // e^−8 and e^−16 of the largest probability
	switch {
	case c.depth < last:
		c.depth = max(float32(2*c.depth), first)
		c.list = orderAtLeast(c.logits, c.largest-float32(c.depth*c.t))
	default:
		c.list, c.whole = orderAll(c.logits), true
	}
	for n := len(c.list); n > 0 && math.IsInf(float64(c.list[n-1].logit), -1); n-- {
		c.list = c.list[:n-1]
	}
	weigh(c.list, c.largest, c.t)
}

// count returns how many candidates there are.
func (c *choosing) count() int {
	if c.whole {
		return len(c.list)
	}
	n := 0
	for _, l := range c.logits {
		if !math.IsInf(float64(l), -1) {
			n++
		}
	}
	return n
}

// sum returns Σ p of all candidates.
func (c *choosing) sum() float64 {
	if !c.settled {
		return wholeSum(c.logits, c.largest, c.t)
	}
	sum := 0.0
	for i := range c.list {
		sum += float64(c.list[i].p)
	}
	return sum
}

// moments returns Σ p and Σ p·d / Σ p of all candidates, d = round(logit − largest), while t is 1.
func (c *choosing) moments() (sum, mean float64) {
	var sums, products [4]float64
	if !c.settled {
		each(c.logits, c.largest, 1, func(d, p []float32) {
			for i := range p {
				sums[i%4] += float64(p[i])
				products[i%4] += share(p[i], d[i])
			}
		})
	} else {
		for i := range c.list {
			sums[0] += float64(c.list[i].p)
			products[0] += share(c.list[i].p, c.list[i].logit-c.largest)
		}
	}
	sum = fold(sums)
	return sum, fold(products) / sum
}

// share returns p·d, 0 where p is: d may be −∞ there.
func share(p, d float32) float64 {
	if p == 0 {
		return 0
	}
	return float64(float64(p) * float64(d))
}

// wholeSum returns Σ p of a vocabulary, in four lanes.
func wholeSum(logits []float32, largest, t float32) float64 {
	var sums [4]float64
	each(logits, largest, t, func(_, p []float32) {
		for ; len(p) >= 4; p = p[4:] {
			sums[0] += float64(p[0])
			sums[1] += float64(p[1])
			sums[2] += float64(p[2])
			sums[3] += float64(p[3])
		}
		for i := range p {
			sums[i] += float64(p[i])
		}
	})
	return fold(sums)
}

// each calls do with round(d/t) and p of the ids of a vocabulary, ascending, a multiple of 4 at a time but for the last.
func each(logits []float32, largest, t float32, do func(d, p []float32)) {
	var d, p [256]float32
	for at := 0; at < len(logits); at += len(p) {
		some := logits[at:min(at+len(p), len(logits))]
		for i, l := range some {
			d[i] = l - largest
		}
		if t != 1 { // divisions take as long as all the rest
			for i := range some {
				d[i] /= t
			}
		}
		kernels.Exps(p[:len(some)], d[:len(some)])
		do(d[:len(some)], p[:len(some)])
	}
}

// fold adds four lanes.
func fold(lanes [4]float64) float64 { return (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]) }

// typical does step 6. As d descends, what is kept is a run of neighbours round the mean, except that of those at its
// upper end that are equally far the first ones are taken. So candidates below the run need no order.
func (c *choosing) typical(most float64) {
	sum, mean := c.moments()
	target, kept := float64(most*sum), 0.0
	for n := 0; c.has(n) && float64(c.list[len(c.list)-1].logit-c.largest) > mean; { // list must reach the mean
		n = len(c.list)
	}
	distance := func(i int) float64 { return math.Abs(float64(c.list[i].logit-c.largest) - mean) }
	end, _ := slices.BinarySearchFunc(c.list, mean, func(x candidate, mean float64) int { // the first with d ≤ mean
		if float64(x.logit-c.largest) > mean {
			return -1
		}
		return 1
	})
	first := end // the run is [first, end), and below it
	var upper []candidate
	for kept <= target && (c.has(end) || first > 0) {
		if end < len(c.list) && (first == 0 || distance(first-1) > distance(end)) {
			kept += float64(c.list[end].p)
			end++
			continue
		}
		above := first - 1
		for above > 0 && distance(above-1) == distance(first-1) {
			above--
		}
		n := above
		for n < first && kept <= target {
			kept += float64(c.list[n].p)
			n++
		}
		if n < first {
			upper = c.list[above:n]
			break
		}
		first = above
	}
	c.settle(slices.Concat(upper, c.list[first:end]))
}

// excludeTop excludes all but the last of the candidates whose share of Σ p is at least threshold.
func (c *choosing) excludeTop(threshold float64) {
	target := float64(threshold * c.sum())
	n := 0
	for c.has(n) && float64(c.at(n).p) >= target {
		n++
	}
	if n < 2 {
		return
	}
	if c.settled {
		c.settle(c.list[n-1:])
		return
	}
	c.logits = slices.Clone(c.logits)
	for _, x := range c.list[:n-1] {
		c.logits[x.id] = float32(math.Inf(-1))
	}
	c.largest = c.at(n - 1).logit
	c.weigh(1)
}

// draw does step 11.
func (c *choosing) draw(u float64) int32 {
	target, running := float64(u*c.sum()), 0.0
	id := c.at(0).id
	for i := 0; c.has(i); i++ {
		x := c.at(i)
		if x.p == 0 {
			break
		}
		id = x.id
		if running += float64(x.p); running > target {
			break
		}
	}
	return id
}
