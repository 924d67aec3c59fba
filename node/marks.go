package node

import (
	"cmp"
	"slices"

	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/swarm/wire"
)

// marksOf names tokens that follow those of a mark: at each position where a page ends, and at their end. Ascending.
func marksOf(from wire.Mark, tokens []int32) (marks []wire.Mark) {
	for len(tokens) > 0 {
		n := min(len(tokens), wire.PageRows-int(from.Position%wire.PageRows))
		from.Position, from.Prefix = from.Position+uint32(n), from.Prefix.Extend(tokens[:n])
		tokens = tokens[n:]
		marks = append(marks, from)
	}
	return marks
}

// offered returns what marks an opening may name: all pages' and the latest others.
func offered(marks []wire.Mark) (list []wire.Mark) {
	others := 0
	for _, k := range marks {
		if k.Position%wire.PageRows != 0 {
			others++
		}
	}
	for _, k := range marks {
		if k.Position%wire.PageRows != 0 {
			if others--; others >= wire.MaxEnds {
				continue
			}
		}
		list = append(list, k)
	}
	return list
}

// upTo returns the marks at positions up to n.
func upTo(marks []wire.Mark, n int) []wire.Mark {
	for len(marks) > 0 && int(marks[len(marks)-1].Position) > n {
		marks = marks[:len(marks)-1]
	}
	return marks
}

// reachable returns the marks at positions to which a sequence can go back.
func reachable(seq runtime.Sequence, marks []wire.Mark) []wire.Mark {
	return slices.DeleteFunc(slices.Clone(marks), func(k wire.Mark) bool { return seq.Reach(int(k.Position)) != int(k.Position) })
}

// both returns the marks that two lists have, which are ascending.
func both(a, b []wire.Mark) (list []wire.Mark) {
	for len(a) > 0 && len(b) > 0 {
		switch x, y := a[0], b[0]; {
		case x.Position < y.Position:
			a = a[1:]
		case y.Position < x.Position:
			b = b[1:]
		default:
			if x == y {
				list = append(list, x)
			}
			a, b = a[1:], b[1:]
		}
	}
	return list
}

// sorted returns marks in ascending order, each once.
func sorted(marks []wire.Mark) []wire.Mark {
	slices.SortFunc(marks, func(a, b wire.Mark) int { return cmp.Compare(a.Position, b.Position) })
	return slices.Compact(marks)
}
