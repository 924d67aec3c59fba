package artifacts

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// TorrentInfos holds, for each part, the SHA-1 hashes of its pieces one after the other: what the
// part's BitTorrent v1 info dictionary needs beyond the manifest.
//
// They serve ordinary BitTorrent clients only. Nothing here trusts them: inside a swarm the torrent
// of a part is the BEP 52 (v2) one, which follows from the manifest alone.
type TorrentInfos [][]byte

// Bundle is what one peer asks another for by model ID: the manifest, which the ID proves, and the
// v1 torrent hashes and web seeds, which nothing proves.
type Bundle struct {
	Manifest *Manifest
	Torrents TorrentInfos

	// WebSeeds are URLs under which HTTP servers are said to have the model (BEP 19): of the first
	// part, the others beside it under their split names. At most MaxWebSeeds, each as CheckWebSeed
	// wants it, no two alike.
	WebSeeds []string
}

const (
	bundleMagic   = "STARBN\x00" // then the version
	bundlePlain   = 1
	bundleSeeded  = 2 // web seeds follow the hashes
	bundleHeader  = len(bundleMagic) + 1 + 4
	bundleLatest  = bundleSeeded
	webSeedHeader = 2
)

// Marshal returns the encoding: magic and version, the manifest's length (u32) and bytes, then the
// SHA-1 hashes of all parts, 20 bytes per piece. If there are web seeds the version is 2, and their
// number (u8) follows, and for each its length (u16) and text.
func (b *Bundle) Marshal() []byte {
	man := b.Manifest.Marshal()
	out := append([]byte(nil), bundleMagic...)
	if len(b.WebSeeds) == 0 {
		out = append(out, bundlePlain)
	} else {
		out = append(out, bundleSeeded)
	}
	out = binary.LittleEndian.AppendUint32(out, uint32(len(man)))
	out = append(out, man...)
	for _, t := range b.Torrents {
		out = append(out, t...)
	}
	if len(b.WebSeeds) > 0 {
		out = append(out, byte(len(b.WebSeeds)))
		for _, u := range b.WebSeeds {
			out = binary.LittleEndian.AppendUint16(out, uint16(len(u)))
			out = append(out, u...)
		}
	}
	return out
}

// ParseBundle decodes and verifies a bundle of at most limit bytes that somebody sent for the model
// want, as [ParseManifest] does.
func ParseBundle(data []byte, want ID, limit int) (*Bundle, error) {
	if len(data) > limit {
		return nil, fmt.Errorf("bundle of model %s: %d bytes, at most %d are allowed", want.Short(), len(data), limit)
	}
	version, man, data, err := cutBundle(data)
	if err != nil {
		return nil, fmt.Errorf("bundle of model %s: %w", want.Short(), err)
	}
	m, err := ParseManifest(man, want)
	if err != nil {
		return nil, err
	}
	b := &Bundle{Manifest: m, Torrents: make(TorrentInfos, len(m.Parts))}
	for i := range m.Parts {
		need := 20 * len(m.Parts[i].Pieces)
		if len(data) < need {
			return nil, fmt.Errorf("bundle of model %s: part %d has %d pieces, only %d SHA-1 hashes are left", want.Short(), i+1, need/20, len(data)/20)
		}
		b.Torrents[i] = append([]byte(nil), data[:need]...)
		data = data[need:]
	}
	if version == bundleSeeded {
		if b.WebSeeds, data, err = cutWebSeeds(data); err != nil {
			return nil, fmt.Errorf("bundle of model %s: %w", want.Short(), err)
		}
		if _, err = partURLs(b.WebSeeds, 0, len(m.Parts)); err != nil {
			return nil, fmt.Errorf("bundle of model %s: %w", want.Short(), err)
		}
	}
	if len(data) != 0 {
		return nil, fmt.Errorf("bundle of model %s: %d bytes too many", want.Short(), len(data))
	}
	return b, nil
}

// cutBundle takes a bundle to pieces: its version, its manifest, and what follows.
func cutBundle(data []byte) (version byte, man, rest []byte, err error) {
	if len(data) < bundleHeader || string(data[:len(bundleMagic)]) != bundleMagic {
		return 0, nil, nil, errors.New("it does not begin like a bundle")
	}
	version = data[len(bundleMagic)]
	if version < bundlePlain || version > bundleLatest {
		return 0, nil, nil, fmt.Errorf("format version %d, this build reads versions 1 to %d: update starling", version, bundleLatest)
	}
	n := binary.LittleEndian.Uint32(data[len(bundleMagic)+1:])
	data = data[bundleHeader:]
	if uint64(n) > uint64(len(data)) {
		return 0, nil, nil, fmt.Errorf("a manifest of %d bytes, only %d are left", n, len(data))
	}
	return version, data[:n], data[n:], nil
}

// cutWebSeeds reads the web seeds at the beginning of data.
func cutWebSeeds(data []byte) (urls []string, rest []byte, err error) {
	if len(data) < 1 {
		return nil, nil, errors.New("it ends before its web seeds")
	}
	n := int(data[0])
	if n < 1 || n > MaxWebSeeds {
		return nil, nil, fmt.Errorf("%d web seeds, 1 to %d are allowed", n, MaxWebSeeds)
	}
	data = data[1:]
	for range n {
		if len(data) < webSeedHeader {
			return nil, nil, errors.New("it ends before its web seeds do")
		}
		size := int(binary.LittleEndian.Uint16(data))
		if data = data[webSeedHeader:]; len(data) < size {
			return nil, nil, fmt.Errorf("a web seed of %d bytes, only %d are left", size, len(data))
		}
		u := string(data[:size])
		if err := CheckWebSeed(u); err != nil {
			return nil, nil, err
		}
		if slices.Contains(urls, u) {
			return nil, nil, fmt.Errorf("web seed %s is there twice", quote(u))
		}
		urls, data = append(urls, u), data[size:]
	}
	return urls, data, nil
}

// mergeWebSeeds adds URLs that are not known yet, as long as there is room.
func mergeWebSeeds(known, more []string) []string {
	out := slices.Clone(known)
	for _, u := range more {
		if len(out) < MaxWebSeeds && !slices.Contains(out, u) {
			out = append(out, u)
		}
	}
	return out
}
