package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// Engine is what the local interface needs of a node. Methods that take emit
// call it from one goroutine at a time; an error that emit returns (the reader
// is gone) must end the work.
type Engine interface {
	Status(ctx context.Context) (*Status, error)
	Network(ctx context.Context) (*Network, error)
	WriteMetrics(w io.Writer) error // in Prometheus' text format
	Models(ctx context.Context) ([]Model, error)
	Peers(ctx context.Context) ([]Peer, error)
	Search(ctx context.Context, r SearchRequest) ([]Listing, error)
	Plan(ctx context.Context, r PlanRequest) (*PlanReply, error)
	Tokenize(ctx context.Context, r TokenizeRequest) ([]int32, error)
	Invite(ctx context.Context, r InviteRequest) (*InviteReply, error)
	Members(ctx context.Context) (*MembersReply, error)
	Revoke(ctx context.Context, r RevokeRequest) error
	SetOwner(ctx context.Context, r OwnerRequest) error
	Collect(ctx context.Context, r CollectRequest) (*CollectReply, error)
	Pin(ctx context.Context, r PinRequest) (*Model, error)
	Pause(ctx context.Context, r DrainRequest) (*DrainReply, error)
	Resume(ctx context.Context) error
	Block(ctx context.Context, r BlockRequest) (*Blocked, error)
	Model(ctx context.Context, r ModelRequest, emit func(Event) error) (*Model, error)
	Publish(ctx context.Context, r PublishRequest, emit func(Event) error) (*Model, error)
	Pull(ctx context.Context, r PullRequest, emit func(Event) error) (*Model, error)
	Serve(ctx context.Context, r ServeRequest, emit func(Event) error) (*Model, error)
	Run(ctx context.Context, r RunRequest, emit func(Event) error) (*Account, error)
}

// maxRequest bounds a request's body in bytes.
const maxRequest = 16 << 20

// metricsType is the media type of Prometheus' text format.
const metricsType = "text/plain; version=0.0.4; charset=utf-8"

// Handler serves the local interface of e. Stop is called by a shutdown
// request, on a goroutine of its own.
func Handler(e Engine, stop func(DrainRequest)) http.Handler {
	mux := http.NewServeMux()
	get(mux, "/v1/status", func(r *http.Request) (any, error) { return e.Status(r.Context()) })
	get(mux, "/v1/network", func(r *http.Request) (any, error) { return e.Network(r.Context()) })
	HandleMetrics(mux, e)
	get(mux, "/v1/models", func(r *http.Request) (any, error) { return e.Models(r.Context()) })
	get(mux, "/v1/peers", func(r *http.Request) (any, error) { return e.Peers(r.Context()) })
	post(mux, "/v1/search", func(ctx context.Context, q SearchRequest) (any, error) { return e.Search(ctx, q) })
	post(mux, "/v1/plan", func(ctx context.Context, q PlanRequest) (any, error) { return e.Plan(ctx, q) })
	post(mux, "/v1/invite", func(ctx context.Context, q InviteRequest) (any, error) { return e.Invite(ctx, q) })
	get(mux, "/v1/members", func(r *http.Request) (any, error) { return e.Members(r.Context()) })
	post(mux, "/v1/owner", func(ctx context.Context, q OwnerRequest) (any, error) { return struct{}{}, e.SetOwner(ctx, q) })
	post(mux, "/v1/revoke", func(ctx context.Context, q RevokeRequest) (any, error) { return struct{}{}, e.Revoke(ctx, q) })
	post(mux, "/v1/gc", func(ctx context.Context, q CollectRequest) (any, error) { return e.Collect(ctx, q) })
	post(mux, "/v1/pin", func(ctx context.Context, q PinRequest) (any, error) { return e.Pin(ctx, q) })
	post(mux, "/v1/tokenize", func(ctx context.Context, q TokenizeRequest) (any, error) { return e.Tokenize(ctx, q) })
	stream(mux, "/v1/model", func(ctx context.Context, q ModelRequest, emit func(Event) error) (Event, error) {
		m, err := e.Model(ctx, q, emit)
		return Event{Model: m}, err
	})
	stream(mux, "/v1/publish", func(ctx context.Context, q PublishRequest, emit func(Event) error) (Event, error) {
		m, err := e.Publish(ctx, q, emit)
		return Event{Model: m}, err
	})
	stream(mux, "/v1/pull", func(ctx context.Context, q PullRequest, emit func(Event) error) (Event, error) {
		m, err := e.Pull(ctx, q, emit)
		return Event{Model: m}, err
	})
	stream(mux, "/v1/serve", func(ctx context.Context, q ServeRequest, emit func(Event) error) (Event, error) {
		m, err := e.Serve(ctx, q, emit)
		return Event{Model: m}, err
	})
	stream(mux, "/v1/run", func(ctx context.Context, q RunRequest, emit func(Event) error) (Event, error) {
		a, err := e.Run(ctx, q, emit)
		return Event{Run: a}, err
	})
	post(mux, "/v1/pause", func(ctx context.Context, q DrainRequest) (any, error) { return e.Pause(ctx, q) })
	post(mux, "/v1/resume", func(ctx context.Context, _ struct{}) (any, error) { return struct{}{}, e.Resume(ctx) })
	post(mux, "/v1/block", func(ctx context.Context, q BlockRequest) (any, error) { return e.Block(ctx, q) })
	post(mux, "/v1/shutdown", func(_ context.Context, q DrainRequest) (any, error) {
		go stop(q)
		return struct{}{}, nil
	})
	return mux
}

// HandleMetrics makes mux serve /metrics of e.
func HandleMetrics(mux *http.ServeMux, e Engine) {
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		var b bytes.Buffer
		if err := e.WriteMetrics(&b); err != nil {
			fail(w, http.StatusInternalServerError, err)
			return
		}
		w.Header().Set("Content-Type", metricsType)
		_, _ = w.Write(b.Bytes()) // the reader may be gone
	})
}

func get(mux *http.ServeMux, path string, f func(*http.Request) (any, error)) {
	mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
		v, err := f(r)
		reply(w, v, err)
	})
}

func post[Q any](mux *http.ServeMux, path string, f func(context.Context, Q) (any, error)) {
	mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
		q, err := decode[Q](w, r)
		if err != nil {
			fail(w, http.StatusBadRequest, err)
			return
		}
		v, err := f(r.Context(), q)
		reply(w, v, err)
	})
}

func stream[Q any](mux *http.ServeMux, path string, f func(context.Context, Q, func(Event) error) (Event, error)) {
	mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
		q, err := decode[Q](w, r)
		if err != nil {
			fail(w, http.StatusBadRequest, err)
			return
		}
		w.Header().Set("Content-Type", "application/x-ndjson")
		var mu sync.Mutex
		enc, flush := json.NewEncoder(w), http.NewResponseController(w)
		emit := func(ev Event) error {
			mu.Lock()
			defer mu.Unlock()
			if err := enc.Encode(ev); err != nil {
				return err
			}
			return flush.Flush()
		}
		last, err := f(r.Context(), q, emit)
		if last.Kind = "done"; err != nil {
			last = Failed(err)
		}
		_ = emit(last) // the reader may be gone; nothing is left to tell it
	})
}

func decode[Q any](w http.ResponseWriter, r *http.Request) (q Q, err error) {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest))
	d.DisallowUnknownFields()
	if err := d.Decode(&q); err != nil {
		return q, fmt.Errorf("request: %w", err)
	}
	// Read to the end: only then does the server watch for the client to leave.
	if _, err := d.Token(); err != io.EOF {
		return q, errors.New("request: something follows the JSON object")
	}
	return q, nil
}

func reply(w http.ResponseWriter, v any, err error) {
	if err != nil {
		code := http.StatusUnprocessableEntity
		if errors.Is(err, context.Canceled) {
			code = http.StatusServiceUnavailable
		}
		fail(w, code, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the reader may be gone
}

func fail(w http.ResponseWriter, code int, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(Failed(err))
}

// Failed is the event that tells of an error.
func Failed(err error) Event {
	ev := Event{Kind: "error", Error: err.Error()}
	errors.As(err, &ev.Cause)
	return ev
}

// failed is the error that an event tells of.
func (ev *Event) failed() error {
	if ev.Cause != nil {
		ev.Cause.Text = ev.Error
		return ev.Cause
	}
	return errors.New(ev.Error)
}
