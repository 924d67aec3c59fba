package artifacts

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// infoV1 returns the BitTorrent v1 info dictionary of one part. It follows from the manifest and
// the part's SHA-1 hashes, so everyone who hashed the same bytes has the same one.
func (b *Bundle) infoV1(part int) ([]byte, error) {
	if part < 0 || part >= len(b.Manifest.Parts) {
		return nil, fmt.Errorf("part %d of a model of %d", part+1, len(b.Manifest.Parts))
	}
	if len(b.Torrents) != len(b.Manifest.Parts) {
		return nil, errors.New("the bundle has no BitTorrent v1 hashes: publish the model here to make them")
	}
	p := &b.Manifest.Parts[part]
	out := []byte("d6:lengthi" + strconv.FormatInt(p.Size, 10) + "e4:name")
	out = appendBytes(out, p.Name)
	out = append(out, "12:piece lengthi"+strconv.FormatInt(PieceLength(p.Size), 10)+"e6:pieces"...)
	out = appendBytes(out, string(b.Torrents[part]))
	return append(out, 'e'), nil
}

// bundleKey is where a .torrent file of ours has the model's bundle. It is outside the info
// dictionary, so ordinary clients pass over it and the info hash does not depend on it.
const bundleKey = "starling bundle"

// TorrentFile returns a .torrent file (BitTorrent v1, single file) of one part, for ordinary
// clients, with the bundle beside it for Starling. trackers may be empty.
//
// An ordinary client trusts the SHA-1 hashes in it, so offer it only for a model that was hashed
// here.
func (b *Bundle) TorrentFile(part int, trackers []string) ([]byte, error) {
	info, err := b.infoV1(part)
	if err != nil {
		return nil, err
	}
	seeds, err := partURLs(b.WebSeeds, part, len(b.Manifest.Parts))
	if err != nil {
		return nil, err
	}
	out := []byte("d") // keys ascend
	if len(trackers) > 0 {
		out = appendBytes(appendBytes(out, "announce"), trackers[0])
	}
	if len(trackers) > 1 {
		out = append(appendBytes(out, "announce-list"), 'l')
		for _, u := range trackers {
			out = append(appendBytes(append(out, 'l'), u), 'e')
		}
		out = append(out, 'e')
	}
	out = append(appendBytes(out, "info"), info...)
	out = appendBytes(appendBytes(out, bundleKey), string(b.Marshal()))
	if len(seeds) > 0 {
		out = append(appendBytes(out, "url-list"), 'l')
		for _, u := range seeds {
			out = appendBytes(out, u)
		}
		out = append(out, 'e')
	}
	return append(out, 'e'), nil
}

// MaxTorrentFile bounds a .torrent file that is read: a bundle, and the hashes of one part again.
const MaxTorrentFile = MaxBundle + 32<<20

// ParseTorrentFile reads a .torrent file that [Bundle.TorrentFile] wrote, somewhere. What it says of
// itself is consistent then; whether it is the model that its reader wants, the bundle's ID tells.
// Web seeds and trackers outside the bundle are not looked at.
func ParseTorrentFile(data []byte) (*Bundle, error) {
	if len(data) > MaxTorrentFile {
		return nil, fmt.Errorf("torrent file: %d bytes, at most %d are allowed", len(data), MaxTorrentFile)
	}
	b, err := parseTorrentFile(data)
	if err != nil {
		return nil, fmt.Errorf("torrent file: %w", err)
	}
	return b, nil
}

func parseTorrentFile(data []byte) (*Bundle, error) {
	dict, err := cutDict(data)
	if err != nil {
		return nil, err
	}
	value, ok := dict[bundleKey]
	if !ok {
		return nil, fmt.Errorf("it has no %q, so nothing proves its pieces by SHA-256: pull one that 'starling publish --torrent-out' wrote, or the model's URL", bundleKey)
	}
	raw, _, err := cutString(value)
	if err != nil {
		return nil, err
	}
	_, man, _, err := cutBundle(raw)
	if err != nil {
		return nil, err
	}
	m, err := decodeManifest(man)
	if err != nil {
		return nil, err
	}
	b, err := ParseBundle(raw, m.ID(), MaxBundle)
	if err != nil {
		return nil, err
	}
	for i := range m.Parts {
		if info, err := b.infoV1(i); err == nil && bytes.Equal(info, dict["info"]) {
			return b, nil
		}
	}
	return nil, errors.New("its info dictionary is not that of a part of its bundle: it was changed")
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
