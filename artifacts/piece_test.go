package artifacts

import (
	"bytes"
	"crypto/sha256"
	"math/rand/v2"
	"testing"

	"github.com/anacrolix/torrent/bencode"
	"github.com/anacrolix/torrent/merkle"
	"github.com/anacrolix/torrent/metainfo"
)

func TestPieceLength(t *testing.T) {
	const k, mi, gi = int64(1) << 10, int64(1) << 20, int64(1) << 30
	for _, c := range []struct{ size, want int64 }{
		{1, 16 * k},
		{32*mi + 2047, 16 * k},
		{64*mi - 1, 16 * k},
		{64 * mi, 32 * k},
		{98362432, 32 * k},
		{4 * gi, 2 * mi},
		{4*gi - 1, 1 * mi},
		{32 * gi, 16 * mi},
		{700 * gi, 16 * mi},
		{MaxPartSize, 16 * mi},
	} {
		if got := PieceLength(c.size); got != c.want {
			t.Errorf("PieceLength(%d) = %d, want %d", c.size, got, c.want)
		}
	}
}

// The tree equals that of the torrent library's merkle package, at every size round the borders of
// leaves, pieces and powers of two.
func TestTreeAgainstLibrary(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	sizes := []int{1, 100, LeafSize - 1, LeafSize, LeafSize + 1, 2 * LeafSize, 3 * LeafSize, 5*LeafSize + 7, 9 * LeafSize}
	for range 20 {
		sizes = append(sizes, 1+rng.IntN(40*LeafSize))
	}
	for _, size := range sizes {
		data := make([]byte, size)
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		var leaves [][32]byte
		for rest := data; len(rest) > 0; rest = rest[min(len(rest), LeafSize):] {
			leaves = append(leaves, sha256.Sum256(rest[:min(len(rest), LeafSize)]))
		}
		want := merkle.RootWithPadHash(leaves, [32]byte{})
		n := int(pieceCount(int64(size)))
		pieces := make([][32]byte, n)
		for i := range pieces {
			pieces[i] = pieceHash(data[i*LeafSize:min(size, (i+1)*LeafSize)], int64(size))
		}
		if got := rootOf(pieces, int64(size)); got != want {
			t.Errorf("root of %d bytes differs from the library's", size)
		}
		if got := treeHash(data, ceilPow2(len(leaves))); got != want {
			t.Errorf("tree of %d bytes differs from the library's", size)
		}
	}
}

// Pieces of several leaves: the library must take the piece layer as that of the root.
func TestLayersAgainstLibrary(t *testing.T) {
	size := int64(200<<20 + 12345) // 64 KiB pieces
	n := int(pieceCount(size))
	p := Part{Name: "model.gguf", Size: size, Pieces: make([][32]byte, n)}
	for i := range p.Pieces {
		p.Pieces[i] = sha256.Sum256([]byte{byte(i), byte(i >> 8)})
	}
	p.Root = rootOf(p.Pieces, size)
	m := &Manifest{Parts: []Part{p}}
	var info metainfo.Info
	if err := bencode.Unmarshal(m.infoV2(0), &info); err != nil {
		t.Fatal(err)
	}
	if !info.HasV2() || info.HasV1() || info.NumPieces() != n || info.PieceLength != 64<<10 || info.BestName() != "model.gguf" {
		t.Errorf("info dictionary: %+v", info)
	}
	if err := metainfo.ValidatePieceLayers(m.layersV2(0), &info.FileTree, info.PieceLength); err != nil {
		t.Error(err)
	}
	again, err := bencode.Marshal(&info)
	if err != nil || !bytes.Equal(again, m.infoV2(0)) {
		t.Errorf("the library encodes the info dictionary differently (%v):\n%q\n%q", err, again, m.infoV2(0))
	}
	m.Parts[0].Pieces[7][0] ^= 1
	if metainfo.ValidatePieceLayers(m.layersV2(0), &info.FileTree, info.PieceLength) == nil {
		t.Error("a wrong piece layer was accepted: this test can't fail")
	}
}

func TestTorrentFileAgainstLibrary(t *testing.T) {
	_, m, paths := publish(t, testModel{layers: 4, parts: 2, seed: 9})
	for i, path := range paths {
		file, err := m.Bundle().TorrentFile(i, nil)
		if err != nil {
			t.Fatal(err)
		}
		mi, err := metainfo.Load(bytes.NewReader(file))
		if err != nil {
			t.Fatal(err)
		}
		info, err := mi.UnmarshalInfo()
		if err != nil {
			t.Fatal(err)
		}
		data := mustRead(t, path)
		pieces, err := metainfo.GeneratePieces(bytes.NewReader(data), info.PieceLength, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(info.Pieces, pieces) || info.Length != int64(len(data)) || info.Name != m.Manifest().Parts[i].Name {
			t.Errorf("part %d: torrent file of %q, %d bytes", i, info.Name, info.Length)
		}
	}
	if _, err := m.Bundle().TorrentFile(2, nil); err == nil {
		t.Error("a torrent file of a part that is not there")
	}
}
