package artifacts

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/starling-swarm/starling/runtime/gguf"
)

// Limits on a manifest. The largest model that fits is 4 PiB; the format itself costs 32 bytes per
// piece, so what a hostile manifest can claim is bounded by what it sends.
const (
	MaxParts    = 4096
	MaxPartSize = 1 << 50
)

// Part is one file of a model.
type Part struct {
	// Name is the file's canonical name: "model.gguf", or "model-00001-of-00003.gguf" for a part
	// of several. It follows from the part's number, is not in the encoding and not under the ID.
	Name string

	Size int64    // bytes
	Root [32]byte // BEP 52 Merkle root of the bytes

	// Pieces are the sub-tree roots of the pieces of PieceLength(Size) bytes, in order. A file of
	// one piece has one: its Root.
	Pieces [][32]byte
}

// Manifest says which bytes a model is. One that came from [Build] or [ParseManifest] is
// consistent: the pieces hash to the roots. It is not changed after that.
type Manifest struct {
	Parts []Part
}

// partName returns the canonical name of part i (from 0) of n.
func partName(i, n int) string {
	if n == 1 {
		return "model.gguf"
	}
	return gguf.PartName("model", i, n)
}

const (
	idDomain       = "starling/model/1" // format version included; 16 bytes
	manifestMagic  = "STARMF\x00\x01"   // the last byte is the version
	manifestHeader = len(manifestMagic) + 4
	partHeader     = 8 + 32
)

// ID returns the model's ID: SHA-256 over "starling/model/1", the number of parts (u32), and for
// each part its size (u64) and Merkle root; integers are little endian.
func (m *Manifest) ID() ID {
	b := []byte(idDomain)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(m.Parts)))
	for i := range m.Parts {
		b = binary.LittleEndian.AppendUint64(b, uint64(m.Parts[i].Size))
		b = append(b, m.Parts[i].Root[:]...)
	}
	return sha256.Sum256(b)
}

// TotalBytes returns the bytes of all parts together.
func (m *Manifest) TotalBytes() int64 {
	var n int64
	for i := range m.Parts {
		n += m.Parts[i].Size
	}
	return n
}

// Marshal returns the canonical encoding: magic and version, the number of parts (u32), each
// part's size (u64) and root, then the piece hashes of all parts that have more than one piece.
func (m *Manifest) Marshal() []byte {
	n := manifestHeader
	for i := range m.Parts {
		n += partHeader + 32*len(m.Parts[i].Pieces)
	}
	b := append(make([]byte, 0, n), manifestMagic...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(m.Parts)))
	for i := range m.Parts {
		b = binary.LittleEndian.AppendUint64(b, uint64(m.Parts[i].Size))
		b = append(b, m.Parts[i].Root[:]...)
	}
	for i := range m.Parts {
		if len(m.Parts[i].Pieces) == 1 {
			continue
		}
		for _, h := range m.Parts[i].Pieces {
			b = append(b, h[:]...)
		}
	}
	return b
}

// ParseManifest decodes and verifies a manifest that somebody sent for the model want: its ID must
// be want and its piece hashes must hash to its roots, so nothing in the result rests on trust.
// Every accepted input is the [Manifest.Marshal] of its result.
func ParseManifest(data []byte, want ID) (*Manifest, error) {
	m, err := decodeManifest(data)
	if err != nil {
		return nil, fmt.Errorf("manifest of model %s: %w", want.Short(), err)
	}
	if id := m.ID(); id != want {
		return nil, fmt.Errorf("manifest of model %s: it describes model %s: ask another peer", want.Short(), id.Short())
	}
	for i := range m.Parts {
		p := &m.Parts[i]
		if rootOf(p.Pieces, p.Size) != p.Root {
			return nil, fmt.Errorf("manifest of model %s: part %d: the piece hashes do not hash to the root: ask another peer", want.Short(), i+1)
		}
	}
	return m, nil
}

// decodeManifest checks the shape only.
func decodeManifest(data []byte) (*Manifest, error) {
	if len(data) < manifestHeader {
		return nil, fmt.Errorf("%d bytes, a manifest has at least %d", len(data), manifestHeader)
	}
	if got := string(data[:len(manifestMagic)]); got != manifestMagic {
		if got[:len(got)-1] == manifestMagic[:len(manifestMagic)-1] {
			return nil, fmt.Errorf("format version %d, this build reads version 1: update starling", got[len(got)-1])
		}
		return nil, errors.New("it does not begin like a manifest")
	}
	n := int(binary.LittleEndian.Uint32(data[len(manifestMagic):]))
	data = data[manifestHeader:]
	if n < 1 || n > MaxParts {
		return nil, fmt.Errorf("%d parts, 1 to %d are allowed", n, MaxParts)
	}
	if len(data) < n*partHeader {
		return nil, fmt.Errorf("%d parts need %d bytes, only %d are left", n, n*partHeader, len(data))
	}
	table, data := data[:n*partHeader], data[n*partHeader:]
	m := &Manifest{Parts: make([]Part, n)}
	for i := range m.Parts {
		p := &m.Parts[i]
		size := binary.LittleEndian.Uint64(table[i*partHeader:])
		if size < 1 || size > MaxPartSize {
			return nil, fmt.Errorf("part %d has %d bytes, 1 to %d are allowed", i+1, size, int64(MaxPartSize))
		}
		p.Name, p.Size = partName(i, n), int64(size)
		copy(p.Root[:], table[i*partHeader+8:])
		count := pieceCount(p.Size)
		if count == 1 {
			p.Pieces = [][32]byte{p.Root}
			continue
		}
		if int64(len(data))/32 < count {
			return nil, fmt.Errorf("part %d has %d pieces, only %d hashes are left", i+1, count, len(data)/32)
		}
		p.Pieces = make([][32]byte, count)
		for j := range p.Pieces {
			copy(p.Pieces[j][:], data[32*j:])
		}
		data = data[32*count:]
	}
	if len(data) != 0 {
		return nil, fmt.Errorf("%d bytes too many", len(data))
	}
	return m, nil
}

// RangeRoot returns a hash over the piece hashes that cover the spans. Two peers that hold the same
// layers of the same bytes have the same one; it is what their handshake compares.
func (m *Manifest) RangeRoot(spans []Span) [32]byte {
	h := sha256.New()
	h.Write([]byte("starling/range/1"))
	for _, r := range m.pieceRuns(spans) {
		var b [20]byte
		binary.LittleEndian.PutUint32(b[0:], uint32(r.part))
		binary.LittleEndian.PutUint64(b[4:], uint64(r.first))
		binary.LittleEndian.PutUint64(b[12:], uint64(r.last))
		h.Write(b[:])
		for _, p := range m.Parts[r.part].Pieces[r.first:r.last] {
			h.Write(p[:])
		}
	}
	return [32]byte(h.Sum(nil))
}
