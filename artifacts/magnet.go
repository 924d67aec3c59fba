package artifacts

import (
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

const magnetScheme = "magnet:?"

// magnetID is the parameter of our magnet links that has the model's ID. Names that begin with "x." are for extensions; ordinary clients pass over them.
const magnetID = "x.starling"

// maxMagnet bounds a magnet link that is read, in bytes: one with all web seeds, escaped, and as much for trackers.
const maxMagnet = 2 * 3 * MaxWebSeeds * maxURLLength

// Magnet returns a magnet link (BEP 9) to the torrent of TorrentFile, with the model's ID beside it for Starling.
func (b *Bundle) Magnet(part int, trackers []string) (string, error) {
	info, err := b.infoV1(part)
	if err != nil {
		return "", err
	}
	seeds, err := partURLs(b.WebSeeds, part, len(b.Manifest.Parts))
	if err != nil {
		return "", err
	}
	p := &b.Manifest.Parts[part]
	hash := sha1.Sum(info)
	link := magnetScheme + "xt=urn:btih:" + hex.EncodeToString(hash[:]) + "&dn=" + p.Name + "&xl=" + strconv.FormatInt(p.Size, 10)
	for _, u := range trackers {
		link += "&tr=" + url.QueryEscape(u)
	}
	for _, u := range seeds {
		link += "&ws=" + url.QueryEscape(u)
	}
	return link + "&" + magnetID + "=" + b.Manifest.ID().String(), nil
}

// IsMagnet reports whether a person named a model by a magnet link, for [ParseMagnet].
func IsMagnet(text string) bool { return strings.HasPrefix(text, magnetScheme) }

// ParseMagnet returns the model of a magnet link that [Bundle.Magnet] wrote, somewhere. The ID alone counts: info hashes of v1 prove no byte by
// SHA-256, and trackers and web seeds are for ordinary clients.
func ParseMagnet(link string) (ID, error) {
	id, err := parseMagnet(link)
	if err != nil {
		return ID{}, fmt.Errorf("magnet link: %w", err)
	}
	return id, nil
}

func parseMagnet(link string) (ID, error) {
	if len(link) > maxMagnet {
		return ID{}, fmt.Errorf("%d bytes, at most %d are allowed", len(link), maxMagnet)
	}
	text, ok := strings.CutPrefix(link, magnetScheme)
	if !ok {
		return ID{}, fmt.Errorf("it does not begin with %q", magnetScheme)
	}
	q, err := url.ParseQuery(text)
	if err != nil {
		return ID{}, errors.New("its parameters can't be read: copy all of it, in quotes")
	}
	switch ids := q[magnetID]; len(ids) {
	case 0:
		return ID{}, fmt.Errorf("it has no %q, so nothing proves its pieces by SHA-256: "+
			"copy all of it, in quotes, pull one that 'starling publish --torrent-out' printed, or the model's ID", magnetID)
	case 1:
		return ParseID(ids[0])
	}
	return ID{}, fmt.Errorf("it names several models: pull each by its ID, the %q", magnetID)
}
