package runtime

import (
	"math/bits"
	"slices"
)

// Snapshots says at which positions a sequence keeps what its layers' tails were, beside the newest: so it can go back there (Truncate,
// Fork), and a sender may export from there. It follows from the model, the KV type and the capacity alone, so all peers of a session
// have them at the same positions, whatever their layers are.
//
// They get sparser with age. Behind n positions those at i·Every are kept of which
//
//	⌊n/Every⌋ − i < 2·(largest power of two that divides i)
//
// so there is one for each power of two at most, the latest is the last multiple, and going back from n to a position n−d loses at
// most about 2·d more.
type Snapshots struct {
	Every int // positions, whole pages; 0: there are none
	Most  int // that a sequence has at once
}

// A sequence's snapshots take as much memory as the rows of all layers, but they are at least and at most so many where there are as many
// page ends. Of 30 delta nets with 32 value heads of 128 elements one is 63 MiB, as much as the rows of 3,200 positions in 10 layers with
// 2 heads of 256.
const (
	leastSnapshots = 4
	mostSnapshots  = 8
)

// SnapshotsOf returns the snapshots of a sequence of that capacity, of a model whose layers take so many bytes for a position's rows and
// so many for their tails.
func SnapshotsOf(rowBytes, tailBytes int64, capacity int) Snapshots {
	if tailBytes <= 0 {
		return Snapshots{}
	}
	worth := tailBytes/max(rowBytes, 1) + 1 // positions whose rows take as much
	most := int(min(max(int64(capacity)/worth, leastSnapshots), mostSnapshots))
	s := Snapshots{Every: pageRows}
	for bits.Len(uint(capacity/s.Every)) > most {
		s.Every *= 2
	}
	s.Most = bits.Len(uint(capacity / s.Every))
	return s
}

// Snapshots returns the snapshots of a sequence of that capacity.
func (c *Config) Snapshots(kv KVType, capacity int) Snapshots {
	rows, tails := 0, 0
	for _, l := range c.Cache {
		if tails += l.TailBytes(); l.Window == 0 {
			rows += l.RowElems() * kv.size()
		}
	}
	return SnapshotsOf(int64(rows), int64(tails), capacity)
}

// Tails returns how many positions' tails a sequence with these snapshots reserves memory for: beside them the newest, and the one before
// the last Run.
func (s Snapshots) Tails() int { return len(tail{}.values) + s.Most }

// keeps reports whether there is a snapshot of position `at` behind n positions.
func (s Snapshots) keeps(at, n int) bool {
	if s.Every == 0 || at <= 0 || at > n || at%s.Every != 0 {
		return false
	}
	i := at / s.Every
	return n/s.Every-i < 2*(i&-i)
}

// snapshot is what a tail was at a position. The values never change, so that forks share them.
type snapshot struct {
	at     int
	values []float32
}

// coming returns the snapshots, yet to be filled in, that positions [from, n) bring. Ascending.
func (s Snapshots) coming(from, n, size int) (list []snapshot) {
	if s.Every == 0 {
		return nil
	}
	for at := (from/s.Every + 1) * s.Every; at <= n; at += s.Every {
		if s.keeps(at, n) {
			list = append(list, snapshot{at, make([]float32, size)})
		}
	}
	return list
}

// thin returns those of list that there are behind n positions. It changes list.
func (s Snapshots) thin(list []snapshot, n int) []snapshot {
	return slices.DeleteFunc(list, func(k snapshot) bool { return !s.keeps(k.at, n) })
}
