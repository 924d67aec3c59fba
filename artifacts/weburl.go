package artifacts

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/starling-swarm/starling/runtime/gguf"
)

// Limits on web seeds: what a bundle or a .torrent file may make anyone remember.
const (
	MaxWebSeeds  = 16
	maxURLLength = 2048
)

// CheckWebSeed says what is wrong with a URL as a web seed, or nil: an absolute http or https URL of
// a file, of at most 2048 printable ASCII characters, without user, password or fragment.
func CheckWebSeed(text string) error {
	bad := func(why string) error { return fmt.Errorf("web seed %s: %s", quote(text), why) }
	if len(text) > maxURLLength {
		return bad(fmt.Sprintf("%d characters, at most %d are allowed", len(text), maxURLLength))
	}
	if strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return bad("write characters other than printable ASCII as %XX")
	}
	u, err := url.Parse(text)
	if err != nil {
		var e *url.Error
		if errors.As(err, &e) {
			err = e.Err
		}
		return bad(err.Error())
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return bad("it does not begin with http:// or https://")
	case u.Hostname() == "":
		return bad("it has no host")
	case u.User != nil:
		return bad("it has a user or password, which everybody would see")
	case u.Fragment != "":
		return bad("it has a fragment (#), which servers never see: leave it out")
	case u.Path == "" || strings.HasSuffix(u.Path, "/"):
		return bad("it names a folder: give the URL of the file")
	}
	return nil
}

// splitURL matches the path of one part of a split model.
var splitURL = regexp.MustCompile(`^(.*)-([0-9]{5})-of-([0-9]{5})\.gguf$`)

// partURL returns the URL of part i (from 0) of n whose first part has the URL first.
func partURL(first string, i, n int) (string, error) {
	if n == 1 {
		return first, nil
	}
	u, err := url.Parse(first)
	if err != nil {
		return "", err
	}
	m := splitURL.FindStringSubmatch(u.Path)
	if m == nil || gguf.PartName(m[1], 0, n) != u.Path {
		return "", fmt.Errorf("web seed %s: the model has %d files: give the URL of the first one, which ends in -00001-of-%05d.gguf", quote(first), n, n)
	}
	u.Path, u.RawPath = gguf.PartName(m[1], i, n), ""
	return u.String(), nil
}

// partURLs is partURL for several web seeds.
func partURLs(firsts []string, i, n int) ([]string, error) {
	out := make([]string, len(firsts))
	for j, first := range firsts {
		var err error
		if out[j], err = partURL(first, i, n); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// DefaultHub is where models named hf:… are: the Hugging Face hub.
const DefaultHub = "https://huggingface.co"

// SourceURL returns the URL of a model's first file that a person named: an http or https URL as it
// is, or hf:OWNER/REPO/FILE.gguf, perhaps hf:OWNER/REPO@REVISION/FILE.gguf, on a hub. hub is its base
// URL; empty is DefaultHub. It only composes the URL.
func SourceURL(source, hub string) (string, error) {
	rest, ok := strings.CutPrefix(source, "hf:")
	if !ok {
		return source, CheckWebSeed(source)
	}
	if hub == "" {
		hub = DefaultHub
	}
	owner, rest, ok1 := strings.Cut(rest, "/")
	repo, file, ok2 := strings.Cut(rest, "/")
	repo, revision, given := strings.Cut(repo, "@")
	if !given {
		revision = "main"
	}
	names := append([]string{owner, repo, revision}, strings.Split(file, "/")...)
	for _, name := range names {
		if !ok1 || !ok2 || name == "" || name == "." || name == ".." {
			return "", fmt.Errorf("%s: write hf:OWNER/REPO/FILE.gguf, or hf:OWNER/REPO@REVISION/FILE.gguf", quote(source))
		}
	}
	for i := range names {
		names[i] = url.PathEscape(names[i])
	}
	u := strings.TrimRight(hub, "/") + "/" + names[0] + "/" + names[1] + "/resolve/" + names[2] + "/" + strings.Join(names[3:], "/")
	return u, CheckWebSeed(u)
}

// IsSource reports whether a person named a model's file on a server, for [SourceURL], and not a
// model.
func IsSource(text string) bool {
	return strings.HasPrefix(text, "hf:") || strings.HasPrefix(text, "http://") || strings.HasPrefix(text, "https://")
}
