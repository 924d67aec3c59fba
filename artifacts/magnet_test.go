package artifacts

import (
	"strings"
	"testing"
)

func TestParseMagnet(t *testing.T) {
	man, infos := tinyManifest(t)
	b := &Bundle{Manifest: man, Torrents: infos, WebSeeds: []string{"http://a/m-00001-of-00002.gguf?x=y&z=%20"}}
	for i := range man.Parts {
		link, err := b.Magnet(i, []string{"http://t/announce?a=b&c=d"})
		if err != nil {
			t.Fatal(err)
		}
		if id, err := ParseMagnet(link); err != nil || id != man.ID() || !IsMagnet(link) {
			t.Errorf("%s: %v, %v", link, id, err)
		}
	}
	id := man.ID().String()
	for link, want := range map[string]string{
		"":         "begin with",
		"magnet:?": "publish --torrent-out",
		"magnet:?xt=urn:btih:0123456789012345678901234567890123456789": "publish --torrent-out",
		"magnet:?x.starling=12":                                              "64 hexadecimal digits",
		"magnet:?x.starling=" + strings.Repeat("g", 64):                      "64 hexadecimal digits",
		"magnet:?x.starling=" + id + "&x.starling=" + id:                     "several models",
		"magnet:?x.starling=" + id + "&dn=%zz":                               "in quotes",
		"magnet:?x.starling=" + id + "&tr=" + strings.Repeat("a", maxMagnet): "are allowed",
	} {
		if _, err := ParseMagnet(link); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.80q: %v, want %q", link, err, want)
		}
	}
}

func FuzzMagnet(f *testing.F) {
	man, infos := tinyManifest(f)
	link, err := (&Bundle{Manifest: man, Torrents: infos}).Magnet(1, []string{"http://t/announce"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(link)
	f.Add("magnet:?xt=urn:btih:0123456789012345678901234567890123456789")
	f.Add("magnet:?x.starling=%30&x%2estarling=a;b")
	f.Fuzz(func(t *testing.T, link string) {
		id, err := ParseMagnet(link)
		if err != nil {
			if strings.Contains(err.Error(), "\n") || len(err.Error()) > 500 {
				t.Errorf("an unfit message: %q", err)
			}
			return
		}
		if again, err := ParseMagnet("magnet:?x.starling=" + id.String()); err != nil || again != id || !IsMagnet(link) {
			t.Errorf("%q is model %v, and again %v, %v", link, id, again, err)
		}
	})
}
