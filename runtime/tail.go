package runtime

import (
	"encoding/binary"
	"math"
	"slices"
)

// tail is what one layer of a sequence keeps beside its rows: numbers that every position changes (LayerCache.State), from
// zeros at position 0. They can't be undone, so that two positions are held: the newest, and the one before the last Run or
// import, from which a failed Run starts again, a sender may still export, and Truncate may go on. Snapshots are of some earlier ones.
type tail struct {
	values [2][]float32 // [State] each; nil until needed, which stands for zeros
	at     [2]int       // positions that they have seen; −1: not to be used
	now    int          // which is the newest
	kept   []snapshot   // ascending
	coming []snapshot   // ascending: those that the Run in progress fills in
}

// spare returns the memory that the next newest values go to; what it held is lost.
func (t *tail) spare(size int) []float32 {
	i := 1 - t.now
	t.at[i] = -1
	if t.values[i] == nil {
		t.values[i] = make([]float32, size)
	}
	return t.values[i]
}

// turn makes the spare values, which have seen n positions, the newest.
func (t *tail) turn(n int) {
	t.now = 1 - t.now
	t.at[t.now] = n
}

// reach returns the last position ≤ n at which the tail can be had; 0 always is one.
func (t *tail) reach(n int) int {
	most := 0
	for _, at := range t.at {
		if at <= n {
			most = max(most, at)
		}
	}
	for _, k := range t.kept {
		if k.at <= n {
			most = max(most, k.at)
		}
	}
	return most
}

// cut goes back to position n, one that reach has given.
func (t *tail) cut(n int) {
	values, ok := t.find(n)
	i := slices.Index(t.at[:], n)
	switch {
	case i >= 0:
		t.now = i
	case ok && n > 0: // the snapshot stays what it is
		copy(t.spare(len(values)), values)
		t.turn(n)
	default: // n is 0
		*t = tail{at: [2]int{0, -1}}
		return
	}
	t.at[1-t.now] = -1
	t.kept = slices.DeleteFunc(t.kept, func(k snapshot) bool { return k.at > n })
}

// fork returns a tail of its own at position n, one that reach has given, with those of the snapshots that s keeps.
func (t *tail) fork(n, size int, s Snapshots) (f tail) {
	f.cut(0)
	if values, ok := t.find(n); ok && values != nil {
		copy(f.spare(size), values)
		f.turn(n)
	}
	f.kept = s.thin(slices.Clone(t.kept), n)
	return f
}

// find returns the values at position n, nil for zeros.
func (t *tail) find(n int) (values []float32, ok bool) {
	if i := slices.Index(t.at[:], n); i >= 0 {
		return t.values[i], true
	}
	for _, k := range t.kept {
		if k.at == n {
			return k.values, true
		}
	}
	return nil, n == 0
}

// appendFloats appends size values, zeros where there are none, as little endian float32.
func appendFloats(dst []byte, values []float32, size int) []byte {
	if values == nil {
		return append(dst, make([]byte, 4*size)...)
	}
	dst = slices.Grow(dst, 4*size)
	for _, x := range values {
		dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(x))
	}
	return dst
}

// readFloats is the inverse of appendFloats; false where a value is NaN or infinite.
func readFloats(dst []float32, data []byte) bool {
	for i := range dst {
		u := binary.LittleEndian.Uint32(data[4*i:])
		if u&0x7f800000 == 0x7f800000 {
			return false
		}
		dst[i] = math.Float32frombits(u)
	}
	return true
}
