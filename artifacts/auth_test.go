package artifacts

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const hubToken = "hf_secret"

// gatedHub gives files to those with the token, from another server. It keeps what Authorization headers that server saw.
type gatedHub struct {
	*httptest.Server
	mu   sync.Mutex
	seen []string
}

func startGatedHub(t *testing.T, dir string) *gatedHub {
	h := &gatedHub{}
	cdn := serveFolder(t, dir, func(files http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.mu.Lock()
			h.seen = append(h.seen, r.Header.Get("Authorization"))
			h.mu.Unlock()
			files.ServeHTTP(w, r)
		})
	})
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("Authorization") {
		case "Bearer " + hubToken:
			http.Redirect(w, r, cdn.URL+r.URL.Path, http.StatusFound)
		case "":
			w.WriteHeader(http.StatusUnauthorized)
		default:
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	t.Cleanup(h.Close)
	return h
}

// A token opens gated files: header, pieces of a known model, and a whole download; the server that the hub redirects to, on the same
// host with another port, never sees it.
func TestGatedHub(t *testing.T) {
	_, src, paths := publish(t, testModel{layers: 6, seed: 61})
	hub := startGatedHub(t, filepath.Dir(paths[0]))
	file := hub.URL + "/m.gguf"
	r, err := OpenRemote(t.Context(), file, &Auth{Server: hub.URL, Token: hubToken}, nil)
	if err != nil {
		t.Fatal(err)
	}
	tor, m := webLeecher(t, src)
	if err := tor.UseRemote(m, r); err != nil {
		t.Fatal(err)
	}
	if err := tor.Fetch(testContext(t), m, m.Manifest().All(), peersOf(), nil); err != nil {
		t.Fatal(err)
	}
	sameFiles(t, m, paths)
	if m, err = openStore(t, t.TempDir()).Download(testContext(t), r, nil, nil); err != nil {
		t.Fatal(err)
	}
	sameFiles(t, m, paths)
	if len(hub.seen) == 0 {
		t.Error("the other server was not asked")
	}
	for _, s := range hub.seen {
		if s != "" {
			t.Errorf("the other server saw %q", s)
		}
	}
}

func TestGatedHubErrors(t *testing.T) {
	_, _, paths := publish(t, testModel{layers: 2, seed: 62})
	hub := startGatedHub(t, filepath.Dir(paths[0]))
	for name, c := range map[string]struct {
		auth *Auth
		want string
	}{
		"no token":         {&Auth{Server: hub.URL}, "set HF_TOKEN or give --token-file"},
		"another token":    {&Auth{Server: hub.URL, Token: "hf_other"}, "give another token"},
		"another server's": {&Auth{Server: "http://127.0.0.1:1", Token: hubToken}, "to everybody"},
		"nobody's":         {nil, "to everybody"},
		"two words":        {&Auth{Server: hub.URL, Token: hubToken + "\r\nX: y"}, "printable ASCII"},
		"no hub":           {&Auth{Server: "hub", Token: hubToken}, "write its URL"},
	} {
		_, err := OpenRemote(t.Context(), hub.URL+"/m.gguf", c.auth, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "hf_") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if len(hub.seen) > 0 {
		t.Error("the other server was asked")
	}
}

// seenToken answers requests with the Authorization header that it sees.
type seenToken struct{}

func (seenToken) RoundTrip(q *http.Request) (*http.Response, error) {
	return &http.Response{Status: q.Header.Get("Authorization")}, nil
}

// A token goes to one server, and not where others could read it.
func TestTokenStaysAtItsServer(t *testing.T) {
	for url, c := range map[string]struct {
		server string
		want   bool
	}{
		"https://hub.example/a/m.gguf":         {"https://hub.example", true},
		"https://HUB.example:443/a/m.gguf":     {"https://hub.example/", true},
		"https://cdn.hub.example/m.gguf":       {"https://hub.example", false},
		"https://hub.example.org/m.gguf":       {"https://hub.example", false},
		"https://hub.example:444/m.gguf":       {"https://hub.example", false},
		"http://hub.example/m.gguf":            {"https://hub.example", false},
		"http://mirror.example/m.gguf":         {"http://mirror.example", false},
		"http://192.168.1.1/m.gguf":            {"http://192.168.1.1", false},
		"http://127.0.0.1:8080/m.gguf":         {"http://127.0.0.1:8080", true},
		"http://localhost/m.gguf":              {"http://localhost:80", true},
		"http://localhost.evil.example/m.gguf": {"http://localhost.evil.example", false},
	} {
		auth, err := newAuthTransport(&Auth{Server: c.server, Token: hubToken}, seenToken{})
		if err != nil {
			t.Fatal(err)
		}
		q := httptest.NewRequest(http.MethodGet, url, nil)
		a, err := auth.RoundTrip(q)
		if err != nil || (a.Status == "Bearer "+hubToken) != c.want || q.Header.Get("Authorization") != "" {
			t.Errorf("%s of %s: seen %q, %v", url, c.server, a.Status, err)
		}
	}
	auth, err := newAuthTransport(&Auth{Server: "http://mirror.example", Token: hubToken}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := auth.refusal(401, &url.URL{Scheme: "http", Host: "mirror.example"}); !strings.Contains(err.Error(), "not shown over http") {
		t.Error(err)
	}
}
