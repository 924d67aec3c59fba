package route

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Machine is one that a swarm doesn't have, to ask what it would bring.
type Machine struct {
	// MemoryBytes is what it has for weights and cache.
	MemoryBytes int64 `json:"memory_bytes"`
	// ReadBytesPerSec is how fast it reads weights and cache when it computes a single token.
	ReadBytesPerSec float64 `json:"read_bytes_per_sec"`
	// LinkBytesPerSec is its network capacity in bytes/s, each way; 0 is not said, the defaults apply.
	LinkBytesPerSec float64 `json:"link_bytes_per_sec,omitempty"`
	// PrefillFlops is FLOP/s on batches of tokens; 0 is not said: in proportion to ReadBytesPerSec, as the defaults are.
	PrefillFlops float64 `json:"prefill_flops,omitempty"`
}

// machineGrammar is what ParseMachine reads, for its errors.
const machineGrammar = `say "add MEMORY@READ[,NETWORK][,COMPUTE]", such as "add 32GB@60GB/s,1Gbit" or "add 64GB@400GB/s,1Gbit,20TFLOPS"`

// ParseMachine reads a machine as a person writes it: add, memory, memory bandwidth, and perhaps network and arithmetic, such as
// "add 32GB@60GB/s,1Gbit". Units are decimal unless they say GiB.
func ParseMachine(text string) (Machine, error) {
	var m Machine
	bad := func(what string) (Machine, error) {
		return Machine{}, fmt.Errorf("what if %q: %s; %s", text, what, machineGrammar)
	}
	rest, ok := strings.CutPrefix(strings.TrimSpace(text), "add ")
	if !ok {
		return bad("it doesn't begin with add")
	}
	memory, rest, ok := strings.Cut(strings.TrimSpace(rest), "@")
	if !ok {
		return bad("no @ between memory and bandwidth")
	}
	bytes, ok := quantity(memory, map[string]float64{"mb": 1e6, "gb": 1e9, "tb": 1e12, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40})
	if !ok || bytes < 1e6 || bytes > 1e15 {
		return bad(fmt.Sprintf("%q is no size of a memory", memory))
	}
	m.MemoryBytes = int64(bytes)
	parts := strings.Split(rest, ",")
	if m.ReadBytesPerSec, ok = quantity(parts[0], map[string]float64{"mb/s": 1e6, "gb/s": 1e9, "tb/s": 1e12}); !ok {
		return bad(fmt.Sprintf("%q is no bandwidth of a memory", parts[0]))
	}
	for _, p := range parts[1:] {
		network, isNetwork := quantity(p, map[string]float64{"kbit": 1e3 / 8, "mbit": 1e6 / 8, "gbit": 1e9 / 8, "mbit/s": 1e6 / 8, "gbit/s": 1e9 / 8})
		flops, isFlops := quantity(p, map[string]float64{"gflops": 1e9, "tflops": 1e12, "gflop/s": 1e9, "tflop/s": 1e12})
		switch {
		case isNetwork && m.LinkBytesPerSec == 0:
			m.LinkBytesPerSec = network
		case isFlops && m.PrefillFlops == 0:
			m.PrefillFlops = flops
		default:
			return bad(fmt.Sprintf("%q is neither a network's rate nor a speed of arithmetic, or one too many", p))
		}
	}
	return m, nil
}

// quantity reads a positive number with one of some units, in lower or upper case.
func quantity(text string, units map[string]float64) (float64, bool) {
	text = strings.ToLower(strings.TrimSpace(text))
	end := strings.LastIndexAny(text, "0123456789.") + 1
	unit, ok := units[strings.TrimSpace(text[end:])]
	n, err := strconv.ParseFloat(text[:end], 64)
	if v := n * unit; ok && err == nil && v >= minSpeed && v <= maxSpeed {
		return v, true
	}
	return 0, false
}

// String is the machine as ParseMachine reads it, without add.
func (m Machine) String() string {
	text := fmt.Sprintf("%s@%s/s", decimal(float64(m.MemoryBytes), "B"), decimal(m.ReadBytesPerSec, "B"))
	if m.LinkBytesPerSec > 0 {
		text += "," + decimal(m.LinkBytesPerSec*8, "bit")
	}
	if m.PrefillFlops > 0 {
		text += "," + decimal(m.PrefillFlops, "FLOPS")
	}
	return text
}

// decimal writes a number with three digits and a prefix from M to T.
func decimal(v float64, unit string) string {
	prefix := "M"
	for v /= 1e6; v >= 1000 && prefix != "T"; v /= 1000 {
		prefix = map[string]string{"M": "G", "G": "T"}[prefix]
	}
	return strconv.FormatFloat(math.Round(v*100)/100, 'f', -1, 64) + prefix + unit
}

// maxOffers is how many ranges of layers a machine that has no room for all is tried with.
const maxOffers = 16

// Offers returns the offers that the machine might make for a model and sessions of so many tokens, under a name: with all layers where
// there is room for them and the cache, otherwise with as many as there is room for, from different ones on. None where it has room for no layer.
func (m Machine) Offers(model Model, tokens int, name string) (list []Peer) {
	flops := m.PrefillFlops
	if flops == 0 {
		flops = m.ReadBytesPerSec * DefaultPrefillFlops / DefaultDecodeBytesPerSec
	}
	offer := func(holds Range, left int64) Peer {
		return Peer{ID: name, Holds: holds, Embed: holds.First == 0, Head: holds.Last == model.Layers, PrefillFlops: flops,
			DecodeBytesPerSec: m.ReadBytesPerSec, KVFreeBytes: left, Up: m.LinkBytesPerSec, Down: m.LinkBytesPerSec}
	}
	last := 0
	for first := range model.Layers {
		if first > 0 && !slices.Contains(model.Cuts, first) {
			continue
		}
		left, most, rest := m.MemoryBytes, first, int64(0)
		if first == 0 {
			left -= model.EmbedBytes
		}
		cache := int64(0)
		for l := first; l < model.Layers; l++ {
			left -= model.LayerWeightBytes[l]
			if l == model.Layers-1 {
				left -= model.HeadBytes
			}
			cache += model.KVBytesPerToken[l] * int64(tokens)
			if left < cache {
				break
			}
			if l == model.Layers-1 || slices.Contains(model.Cuts, l+1) {
				most, rest = l+1, left
			}
		}
		if most > max(first, last) { // no part of the one before
			list, last = append(list, offer(Range{first, most}, rest)), most
		}
	}
	if n := len(list); n > maxOffers {
		few := make([]Peer, maxOffers)
		for i := range few {
			few[i] = list[i*(n-1)/(maxOffers-1)]
		}
		list = few
	}
	return list
}
