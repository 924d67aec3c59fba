package route

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Peer is one node's offer for the model, with its speeds as measured (0: not measured, the defaults below apply).
type Peer struct {
	ID string `json:"id"`
	// Holds is the layers on its disk, verified. It may be asked for any legal part of them.
	Holds Range `json:"holds"`
	// Head and Embed say whether it holds the output head and the token embedding table.
	Head  bool `json:"head"`
	Embed bool `json:"embed"`
	// NoDecode is its owner's wish to serve layers only.
	NoDecode bool `json:"no_decode,omitempty"`
	// Draft names the small model that guesses ahead where it decodes; "" if there is none.
	Draft string `json:"draft,omitempty"`
	// PrefillFlops is FLOP/s on batches of tokens.
	PrefillFlops float64 `json:"prefill_flops"`
	// DecodeBytesPerSec is how fast it reads weights and cache when it computes a single token.
	DecodeBytesPerSec float64 `json:"decode_bytes_per_sec"`
	// MemoryBytes is the memory in which its weights can stay, with what of them is there already. What doesn't fit is read again in every pass.
	// 0 is not known: everything is taken to fit.
	MemoryBytes int64 `json:"memory_bytes,omitempty"`
	// DiskBytesPerSec is how fast it reads weights that have left its memory.
	DiskBytesPerSec float64 `json:"disk_bytes_per_sec,omitempty"`
	// FailuresPerHour is how often it is lost, or so slow that it is given up, while it is at work. 0 is not known: no loss is reckoned with.
	FailuresPerHour float64 `json:"failures_per_hour,omitempty"`
	// KVFreeBytes is the cache memory it can reserve for this session.
	KVFreeBytes int64 `json:"kv_free_bytes"`
	// Context is the longest session it accepts, in tokens; 0 is the model's own limit.
	Context int `json:"context,omitempty"`
	// Up and Down are its network capacity in bytes/s, shared by all its links.
	Up   float64 `json:"up"`
	Down float64 `json:"down"`
	// Load is the number of sessions it already runs.
	Load float64 `json:"load,omitempty"`
	// Self marks the asking user's own machine.
	Self bool `json:"self,omitempty"`
	// Trust is the class its swarm gives it; printed, not priced.
	Trust string `json:"trust,omitempty"`
}

// Link is what was measured between two peers. RTT counts in both directions unless the reverse link says
// otherwise; BytesPerSec counts from From to To only.
type Link struct {
	From string `json:"from"`
	To   string `json:"to"`
	// RTT is the round-trip time in seconds; 0 is not measured.
	RTT float64 `json:"rtt"`
	// BytesPerSec is the throughput; 0 is not measured: the peers' own Up and Down decide.
	BytesPerSec float64 `json:"bytes_per_sec"`
	// Basis says in words what BytesPerSec rests on; printed, not priced.
	Basis string `json:"basis,omitempty"`
}

// Figures for what nobody has measured yet: a modest home machine on a home line. They are meant to be a little
// pessimistic, so that a measured peer is preferred to an unknown one.
const (
	DefaultRTT               = 0.050  // s
	DefaultUp                = 2.5e6  // bytes/s: 20 Mbit/s
	DefaultDown              = 12.5e6 // bytes/s: 100 Mbit/s
	DefaultPrefillFlops      = 2e10   // FLOP/s
	DefaultDecodeBytesPerSec = 4e9    // bytes/s
	DefaultDiskBytesPerSec   = 1e8    // bytes/s; counts only where memory is known to be short
)

// PassOverhead is what one pass through one stage costs beside arithmetic and bytes: scheduling, framing and
// waking workers, in seconds.
const PassOverhead = 0.001

// ReceiveReads is what a byte of seams and cache rows costs the decoder that it comes to, in bytes of weights read: it comes out of the
// kernel, is decrypted, copied and stored. On the machine where reading made 14.7e9 bytes/s, receiving made about 0.9e9.
const ReceiveReads = 16

// RecoverySeconds is how long a session stands still when somebody is lost, beside what is computed again: until it is noticed, a route is
// planned and opened, and rows have been handed over.
const RecoverySeconds = 5

// Speeds and loads outside these limits are no measurements. They also keep every predicted time finite.
const (
	minSpeed = 1.0  // FLOP/s, bytes/s
	maxSpeed = 1e18 // same
	maxLoad  = 1e4  // sessions
	maxRTT   = 600  // s
	maxFails = 3600 // failures per hour
)

// fault says what is impossible about the peer's figures, which come from strangers; "" if nothing is.
func (p *Peer) fault(layers int) string {
	if !plain(p.ID) {
		return "has a name that isn't 1 to 128 visible characters"
	}
	for _, f := range []struct {
		name  string
		value float64
	}{
		{"prefill speed", p.PrefillFlops}, {"decode speed", p.DecodeBytesPerSec}, {"uplink", p.Up}, {"downlink", p.Down},
		{"disk speed", p.DiskBytesPerSec},
	} {
		if f.value != 0 && !(f.value >= minSpeed && f.value <= maxSpeed) {
			return fmt.Sprintf("offers an impossible %s of %g", f.name, f.value)
		}
	}
	if !(p.Load >= 0 && p.Load <= maxLoad) {
		return fmt.Sprintf("offers an impossible load of %g", p.Load)
	}
	if !(p.FailuresPerHour >= 0 && p.FailuresPerHour <= maxFails) {
		return fmt.Sprintf("offers an impossible %g failures per hour", p.FailuresPerHour)
	}
	if p.MemoryBytes < 0 {
		return fmt.Sprintf("offers an impossible memory of %d bytes", p.MemoryBytes)
	}
	if p.KVFreeBytes < 0 || p.Context < 0 {
		return fmt.Sprintf("offers an impossible cache of %d bytes or context of %d tokens", p.KVFreeBytes, p.Context)
	}
	if p.Holds.First < 0 || p.Holds.Last < p.Holds.First || p.Holds.Last > layers {
		return fmt.Sprintf("says it holds layers [%d, %d) of a model with %d", p.Holds.First, p.Holds.Last, layers)
	}
	return ""
}

// plain reports whether a peer's name can be printed as it is.
func plain(id string) bool {
	if id == "" || len(id) > 128 {
		return false
	}
	ascii := true
	for i := range len(id) {
		ascii = ascii && id[i] > ' ' && id[i] < 0x7f
	}
	if ascii {
		return true
	}
	if !utf8.ValidString(id) {
		return false
	}
	return !strings.ContainsFunc(id, func(r rune) bool { return !unicode.IsGraphic(r) || unicode.IsSpace(r) })
}

// orDefault returns v, or the default where nothing was measured.
func orDefault(v, def float64) float64 {
	if v == 0 {
		return def
	}
	return v
}

// unmeasured names the figures that the defaults stand in for; "" if there are none.
func (p *Peer) unmeasured() string {
	var out []string
	for _, f := range []struct {
		name  string
		value float64
	}{
		{"prefill speed", p.PrefillFlops}, {"decode speed", p.DecodeBytesPerSec}, {"uplink", p.Up}, {"downlink", p.Down},
	} {
		if f.value == 0 {
			out = append(out, f.name)
		}
	}
	return strings.Join(out, ", ")
}

// withDefaults fills in what was not measured.
func (p Peer) withDefaults() Peer {
	p.PrefillFlops = orDefault(p.PrefillFlops, DefaultPrefillFlops)
	p.DecodeBytesPerSec = orDefault(p.DecodeBytesPerSec, DefaultDecodeBytesPerSec)
	p.Up = orDefault(p.Up, DefaultUp)
	p.Down = orDefault(p.Down, DefaultDown)
	return p
}

// distinct returns the peers sorted by ID, each ID once, and how often each of them was offered. A node that announced
// itself twice has one machine: of differing offers the one that sorts first as text is kept, so that the
// order of the input never matters.
func distinct(peers []Peer) ([]Peer, []int) {
	order := make([]int, len(peers))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		if c := cmp.Compare(peers[i].ID, peers[j].ID); c != 0 {
			return c
		}
		return cmp.Compare(fmt.Sprint(peers[i]), fmt.Sprint(peers[j]))
	})
	out, times := make([]Peer, 0, len(peers)), make([]int, 0, len(peers))
	for _, i := range order {
		if n := len(out); n > 0 && out[n-1].ID == peers[i].ID {
			times[n-1]++
			continue
		}
		out, times = append(out, peers[i]), append(times, 1)
	}
	return out, times
}
