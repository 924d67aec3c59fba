package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/starling-swarm/starling/node"
	"github.com/starling-swarm/starling/node/control"
)

// size is a number of bytes, written like 2GiB, 500MB or 1048576.
type size int64

var sizeUnits = []struct {
	name  string
	bytes float64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1},
}

// UnmarshalText parses a size.
func (s *size) UnmarshalText(b []byte) error {
	text, unit := strings.TrimSpace(string(b)), 1.0
	for _, u := range sizeUnits {
		if len(text) > len(u.name) && strings.EqualFold(text[len(text)-len(u.name):], u.name) {
			text, unit = strings.TrimSpace(text[:len(text)-len(u.name)]), u.bytes
			break
		}
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(n) || n < 0 || n*unit >= math.MaxInt64 {
		return fmt.Errorf("size %q: write bytes, or a number with a unit such as 2GiB or 500MB", b)
	}
	*s = size(n * unit)
	return nil
}

// bytesText writes a size in three digits and a decimal unit.
func bytesText(n int64) string {
	x, units := float64(n), []string{"B", "kB", "MB", "GB", "TB", "PB", "EB"}
	i := 0
	for x >= 999.5 && i < len(units)-1 {
		x /= 1000
		i++
	}
	return fmt.Sprintf("%.3g %s", x, units[i])
}

// layers is an inclusive range of layers on the command line: "0-9", "4", or
// "auto" or "all", which are nil.
type layers struct {
	r   *control.Layers
	all bool // "all", whatever there is room for
}

// UnmarshalText parses a range. "9-8" holds no layer: at the model's end it
// means the head alone.
func (l *layers) UnmarshalText(b []byte) error {
	text := strings.TrimSpace(string(b))
	if text == "auto" || text == "all" {
		l.r, l.all = nil, text == "all"
		return nil
	}
	first, last, isRange := strings.Cut(strings.ReplaceAll(text, "–", "-"), "-")
	if !isRange {
		last = first
	}
	a, errA := strconv.ParseUint(strings.TrimSpace(first), 10, 16)
	z, errZ := strconv.ParseUint(strings.TrimSpace(last), 10, 16)
	if errA != nil || errZ != nil || z+1 < a {
		return fmt.Errorf("layers %q: write the first and the last layer, such as 0-9, or auto", b)
	}
	l.r, l.all = &control.Layers{First: int(a), Last: int(z)}, false
	return nil
}

// positions are a range on the command line, "4-6" or "4"; the zero ones are what nobody gave.
type positions struct{ first, end int } // end excluded

// UnmarshalText parses positions.
func (s *positions) UnmarshalText(b []byte) error {
	first, last, isRange := strings.Cut(strings.TrimSpace(string(b)), "-")
	if !isRange {
		last = first
	}
	a, errA := strconv.ParseUint(first, 10, 31)
	z, errZ := strconv.ParseUint(last, 10, 31)
	if errA != nil || errZ != nil || z < a {
		return fmt.Errorf("positions %q: write the first and the last one, such as 4-6", b)
	}
	*s = positions{int(a), int(z) + 1}
	return nil
}

// workHours are hours as a flag.
type workHours struct{ node.Hours }

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *workHours) UnmarshalText(text []byte) (err error) {
	h.Hours, err = node.ParseHours(string(text))
	return err
}

// growth is a growth as a flag.
type growth struct{ node.Growth }

// UnmarshalText implements encoding.TextUnmarshaler.
func (g *growth) UnmarshalText(text []byte) (err error) {
	g.Growth, err = node.ParseGrowth(strings.ToLower(string(text)))
	return err
}

// layersText writes an inclusive range as people see it.
func layersText(r *control.Layers) string {
	switch {
	case r == nil:
		return "–"
	case r.Last < r.First:
		return "the head only"
	case r.Last == r.First:
		return fmt.Sprintf("layer %d (1)", r.First)
	}
	return fmt.Sprintf("layers %d–%d (%d)", r.First, r.Last, r.Last-r.First+1)
}

// flagText writes a range as the --layers flag takes it.
func flagText(r control.Layers) string { return fmt.Sprintf("%d-%d", r.First, r.Last) }
