package artifacts

import (
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/anacrolix/torrent/metainfo"
)

func TestTorrentFileCarriesTheBundle(t *testing.T) {
	_, m, _ := publish(t, testModel{layers: 4, parts: 2, seed: 9})
	b := m.Bundle()
	b.WebSeeds = []string{"https://example.org/a%20b/m-00001-of-00002.gguf?x=y"}
	trackers := []string{"http://one.example/announce", "udp://two.example:6969"}
	for i := range b.Manifest.Parts {
		file, err := b.TorrentFile(i, trackers)
		if err != nil {
			t.Fatal(err)
		}
		mi, err := metainfo.Load(bytes.NewReader(file)) // an ordinary client's reader
		if err != nil {
			t.Fatal(err)
		}
		want := strings.Replace(b.WebSeeds[0], "00001", "0000"+string(rune('1'+i)), 1)
		if mi.Announce != trackers[0] || len(mi.AnnounceList) != 2 || mi.AnnounceList[1][0] != trackers[1] || len(mi.UrlList) != 1 || mi.UrlList[0] != want {
			t.Errorf("part %d: trackers %q %q, web seeds %q", i+1, mi.Announce, mi.AnnounceList, mi.UrlList)
		}
		link, err := b.Magnet(i, trackers)
		if err != nil {
			t.Fatal(err)
		}
		magnet, err := metainfo.ParseMagnetUri(link)
		if err != nil || magnet.InfoHash != mi.HashInfoBytes() || len(magnet.Trackers) != 2 || magnet.Params.Get("ws") != want {
			t.Errorf("part %d: magnet %s: %+v, %v", i+1, link, magnet, err)
		}
		if got, err := ParseTorrentFile(file); err != nil || !bytes.Equal(got.Marshal(), b.Marshal()) {
			t.Errorf("part %d: read back: %v", i+1, err)
		}
	}
}

func TestTorrentFileErrors(t *testing.T) {
	man, infos := tinyManifest(t)
	b := &Bundle{Manifest: man, Torrents: infos}
	good, err := b.TorrentFile(0, nil)
	if err != nil {
		t.Fatal(err)
	}
	plain := bytes.Replace(good, appendBytes(nil, bundleKey), []byte("15:starling bundlx"), 1)
	for name, c := range map[string]struct {
		data string
		want string
	}{
		"empty":         {"", "no bencoded dictionary"},
		"ordinary":      {string(plain), "starling publish --torrent-out"},
		"other info":    {strings.Replace(string(good), "model-00001", "model-00009", 1), "it was changed"},
		"traversal":     {strings.Replace(string(good), "25:model-00001-of-00002.gguf", "25:../../../../../etc/passwd", 1), "it was changed"},
		"deep":          {"d1:a" + strings.Repeat("l", 1<<20), "deep"},
		"long string":   {"d1:a9223372036854775807:x", "only 1 are left"},
		"longer string": {"d1:a99999999999999999999:x", "no length"},
		"integer":       {"d1:ai" + strings.Repeat("9", 1<<20) + "ee", "no end"},
		"cut":           {string(good[:len(good)-1]), "no end"},
		"more":          {string(good) + "x", "follow its end"},
		"order":         {"d1:bi1e1:ai1ee", "out of order"},
		"twice":         {"d1:ai1e1:ai1ee", "out of order"},
	} {
		_, err := ParseTorrentFile([]byte(c.data))
		if c.data == string(good) {
			t.Fatalf("%s: this case changes nothing", name)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") || len(err.Error()) > 400 {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// Whoever publishes a model knows its SHA-1 hashes, whatever somebody's bundle said before.
func TestPublishPutsHashesRight(t *testing.T) {
	_, src, paths := publish(t, testModel{layers: 2, seed: 1})
	b := src.Bundle()
	lie := *b
	lie.Torrents = TorrentInfos{bytes.Repeat([]byte{1}, len(b.Torrents[0]))}
	lie.WebSeeds = []string{"https://example.org/m.gguf"}
	s := openStore(t, t.TempDir())
	m, err := s.AddBundle(&lie)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(m.Bundle().Torrents[0], b.Torrents[0]) {
		t.Fatal("the lie is not there")
	}
	if _, err := s.Publish(t.Context(), paths, nil); err != nil {
		t.Fatal(err)
	}
	s = reopen(t, s)
	got := mustGet(t, s, m.ID()).Bundle()
	if !bytes.Equal(got.Torrents[0], b.Torrents[0]) || len(got.WebSeeds) != 1 {
		t.Error("after publishing, the bundle still has the lie, or has lost its web seed")
	}
	if _, err := s.AddBundle(&lie); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(mustGet(t, s, m.ID()).Bundle().Torrents[0], b.Torrents[0]) {
		t.Error("a later bundle's lie replaced what was hashed here")
	}
}

func TestCheckWebSeed(t *testing.T) {
	for _, u := range []string{"http://a/b", "https://example.org:81/x/y.gguf?z=%20", "http://[::1]:80/m.gguf"} {
		if err := CheckWebSeed(u); err != nil {
			t.Error(err)
		}
	}
	for u, want := range map[string]string{
		"": "http://", "ftp://a/b": "http://", "file:///etc/passwd": "http://", "http:///b": "host", "http://u:p@a/b": "password", "http://a/b#c": "fragment",
		"http://a/b/": "folder", "http://a": "folder", "http://a/b\nHost: c": "printable", "http://a/" + strings.Repeat("x", 2048): "at most 2048", "http://a/%zz": "escape",
	} {
		if err := CheckWebSeed(u); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.40q: %v, want %q", u, err, want)
		}
	}
	if _, err := partURL("http://a/m.gguf", 1, 2); err == nil {
		t.Error("a second part's URL from nothing")
	}
	if _, err := partURL("http://a/m-00001-of-00003.gguf", 1, 2); err == nil {
		t.Error("a second part's URL of a model of more parts")
	}
}

func FuzzTorrentFile(f *testing.F) {
	man, infos := tinyManifest(f)
	b := &Bundle{Manifest: man, Torrents: infos, WebSeeds: []string{"http://a/m-00001-of-00002.gguf"}}
	file, err := b.TorrentFile(1, []string{"http://t/announce"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(file)
	f.Add([]byte("d4:infod6:lengthi5eee"))
	f.Add([]byte("d1:al1:b1:cei-7ee"))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := ParseTorrentFile(data)
		if err != nil {
			return
		}
		for i := range got.Manifest.Parts {
			info, err := got.infoV1(i)
			if err != nil {
				t.Fatal(err)
			}
			hash := sha1.Sum(info)
			if link, err := got.Magnet(i, nil); err != nil || !strings.Contains(link, hex.EncodeToString(hash[:])) {
				t.Errorf("magnet %q, %v", link, err)
			}
		}
	})
}
