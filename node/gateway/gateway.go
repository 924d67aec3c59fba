package gateway

import (
	"crypto/sha256"
	"crypto/subtle"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/starling-swarm/starling/node/control"
)

// Config says what a gateway does. Client is required.
type Config struct {
	Client *control.Client // of the node that asks the swarm; the caller closes it after the last request
	Keys   []string        // one of which a request must show as "Authorization: Bearer KEY"; none: see the package comment
	Wait   time.Duration   // how long a request waits for room where all peers are busy; then it gets status 429
	Log    *slog.Logger    // nil: none
}

// maxBody bounds a request's body in bytes: a context of a million tokens, and its JSON.
const maxBody = 16 << 20

// gateway answers requests. Its methods are called from any goroutine.
type gateway struct {
	client *control.Client
	keys   [][sha256.Size]byte // hashes: comparing takes as long whatever is shown
	wait   time.Duration
	log    *slog.Logger
	now    func() time.Time
}

// New returns the handler of all paths.
func New(c Config) http.Handler { return newGateway(c).handler() }

func newGateway(c Config) *gateway {
	g := &gateway{client: c.Client, wait: c.Wait, log: c.Log, now: time.Now}
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	for _, k := range c.Keys {
		g.keys = append(g.keys, sha256.Sum256([]byte(k)))
	}
	return g
}

func (g *gateway) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", g.models)
	mux.HandleFunc("GET /v1/models/{model...}", g.model)
	mux.HandleFunc("POST /v1/chat/completions", g.chat)
	mux.HandleFunc("POST /v1/completions", g.completions)
	mux.HandleFunc("POST /v1/embeddings", g.embeddings)
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, &apiError{Status: http.StatusNotFound, Type: invalidRequest, Message: "nothing answers " + r.Method + " " + r.URL.Path})
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := g.now()
		if err := g.admit(r); err != nil {
			fail(w, err)
			g.log.Debug("request refused", "method", r.Method, "path", r.URL.Path, "status", err.Status)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		mux.ServeHTTP(w, r)
		g.log.Debug("request", "method", r.Method, "path", r.URL.Path, "took", g.now().Sub(began))
	})
}

// admit says why a request is not heard.
func (g *gateway) admit(r *http.Request) *apiError {
	if len(g.keys) == 0 {
		if !ownName(r.Host) {
			return &apiError{Status: http.StatusForbidden, Type: invalidRequest, Message: "this gateway has no keys, so it hears only who asks for localhost or a loopback address"}
		}
	} else if r.URL.Path != "/health" && !g.knows(r) {
		return &apiError{Status: http.StatusUnauthorized, Type: "authentication_error", Code: "invalid_api_key", Message: "show one of this gateway's keys: Authorization: Bearer KEY"}
	}
	if kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); r.Method == http.MethodPost && !strings.EqualFold(strings.TrimSpace(kind), "application/json") {
		return &apiError{Status: http.StatusUnsupportedMediaType, Type: invalidRequest, Message: "send the body as Content-Type: application/json"}
	}
	return nil
}

// knows reports whether a request shows a key.
func (g *gateway) knows(r *http.Request) bool {
	scheme, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	shown, found := sha256.Sum256([]byte(strings.TrimSpace(key))), 0
	for i := range g.keys {
		found |= subtle.ConstantTimeCompare(shown[:], g.keys[i][:])
	}
	return strings.EqualFold(scheme, "Bearer") && found == 1
}

// ownName reports whether a request was made to this machine by a name that nobody else can give it.
func ownName(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if host = strings.Trim(host, "[]"); strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
