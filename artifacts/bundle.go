package artifacts

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
)

// TorrentInfos holds, for each part, the SHA-1 hashes of its pieces one after the other: what the
// part's BitTorrent v1 info dictionary needs beyond the manifest.
//
// They serve ordinary BitTorrent clients only. Nothing here trusts them: inside a swarm the torrent
// of a part is the BEP 52 (v2) one, which follows from the manifest alone.
type TorrentInfos [][]byte

// Bundle is what one peer asks another for by model ID: the manifest, which the ID proves, and the
// v1 torrent hashes, which nothing proves.
type Bundle struct {
	Manifest *Manifest
	Torrents TorrentInfos
}

const bundleMagic = "STARBN\x00\x01" // the last byte is the version

// Marshal returns the encoding: magic and version, the manifest's length (u32) and bytes, then the
// SHA-1 hashes of all parts, 20 bytes per piece.
func (b *Bundle) Marshal() []byte {
	man := b.Manifest.Marshal()
	out := append([]byte(nil), bundleMagic...)
	out = binary.LittleEndian.AppendUint32(out, uint32(len(man)))
	out = append(out, man...)
	for _, t := range b.Torrents {
		out = append(out, t...)
	}
	return out
}

// ParseBundle decodes and verifies a bundle of at most limit bytes that somebody sent for the model
// want, as [ParseManifest] does.
func ParseBundle(data []byte, want ID, limit int) (*Bundle, error) {
	if len(data) > limit {
		return nil, fmt.Errorf("bundle of model %s: %d bytes, at most %d are allowed", want.Short(), len(data), limit)
	}
	const header = len(bundleMagic) + 4
	if len(data) < header || string(data[:len(bundleMagic)-1]) != bundleMagic[:len(bundleMagic)-1] {
		return nil, fmt.Errorf("bundle of model %s: it does not begin like a bundle", want.Short())
	}
	if v := data[len(bundleMagic)-1]; v != bundleMagic[len(bundleMagic)-1] {
		return nil, fmt.Errorf("bundle of model %s: format version %d, this build reads version 1: update starling", want.Short(), v)
	}
	n := binary.LittleEndian.Uint32(data[len(bundleMagic):])
	data = data[header:]
	if uint64(n) > uint64(len(data)) {
		return nil, fmt.Errorf("bundle of model %s: a manifest of %d bytes, only %d are left", want.Short(), n, len(data))
	}
	m, err := ParseManifest(data[:n], want)
	if err != nil {
		return nil, err
	}
	b := &Bundle{Manifest: m, Torrents: make(TorrentInfos, len(m.Parts))}
	data = data[n:]
	for i := range m.Parts {
		need := 20 * len(m.Parts[i].Pieces)
		if len(data) < need {
			return nil, fmt.Errorf("bundle of model %s: part %d has %d pieces, only %d SHA-1 hashes are left", want.Short(), i+1, need/20, len(data)/20)
		}
		b.Torrents[i] = append([]byte(nil), data[:need]...)
		data = data[need:]
	}
	if len(data) != 0 {
		return nil, fmt.Errorf("bundle of model %s: %d bytes too many", want.Short(), len(data))
	}
	return b, nil
}

// TorrentFile returns a .torrent file (BitTorrent v1, single file, no tracker) of one part, for
// ordinary clients. Such a client trusts the SHA-1 hashes in it, so offer it only for a model that
// was hashed here.
func (b *Bundle) TorrentFile(part int) ([]byte, error) {
	if part < 0 || part >= len(b.Manifest.Parts) {
		return nil, fmt.Errorf("part %d of a model of %d", part+1, len(b.Manifest.Parts))
	}
	if len(b.Torrents) != len(b.Manifest.Parts) {
		return nil, errors.New("the bundle has no BitTorrent v1 hashes: publish the model here to make them")
	}
	p := &b.Manifest.Parts[part]
	out := []byte("d4:infod6:lengthi" + strconv.FormatInt(p.Size, 10) + "e4:name")
	out = appendBytes(out, p.Name)
	out = append(out, "12:piece lengthi"+strconv.FormatInt(PieceLength(p.Size), 10)+"e6:pieces"...)
	out = appendBytes(out, string(b.Torrents[part]))
	return append(out, "ee"...), nil
}

// infoV2 returns the BEP 52 info dictionary of one part. It follows from the manifest, so every
// holder of the model has the same one, and with it the same info hash.
func (m *Manifest) infoV2(part int) []byte {
	p := &m.Parts[part]
	out := appendBytes([]byte("d9:file treed"), p.Name)
	out = append(out, "d0:d6:lengthi"+strconv.FormatInt(p.Size, 10)+"e11:pieces root32:"...)
	out = append(out, p.Root[:]...)
	out = append(out, "eee12:meta versioni2e4:name"...)
	out = appendBytes(out, p.Name)
	return append(out, "12:piece lengthi"+strconv.FormatInt(PieceLength(p.Size), 10)+"ee"...)
}

// layersV2 returns the BEP 52 piece layer of one part: nil for a file of one piece.
func (m *Manifest) layersV2(part int) map[string]string {
	p := &m.Parts[part]
	if len(p.Pieces) == 1 {
		return nil
	}
	layer := make([]byte, 0, 32*len(p.Pieces))
	for _, h := range p.Pieces {
		layer = append(layer, h[:]...)
	}
	return map[string]string{string(p.Root[:]): string(layer)}
}

// appendBytes appends a bencoded byte string.
func appendBytes(out []byte, s string) []byte {
	out = strconv.AppendInt(out, int64(len(s)), 10)
	return append(append(out, ':'), s...)
}
