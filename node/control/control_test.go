package control

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-swarm/starling/route"
)

// engine is a node that does nothing: its answers are fields, its long work
// says a few events and waits where it is told to.
type engine struct {
	err     error
	events  []Event
	hang    bool          // work lasts until its context ends
	ended   chan error    // gets what ended hanging work
	asked   any           // last request
	account *Account      // of Run
	emitErr chan error    // gets what emit returned when the client had gone
	flood   bool          // emit until it fails
	began   chan struct{} // closed when hanging work has begun
}

func (e *engine) Status(context.Context) (*Status, error) {
	return &Status{Version: "test", Peer: "p", Models: []Model{{ID: "m", Held: &Layers{0, 9}}}}, e.err
}
func (e *engine) Network(context.Context) (*Network, error) {
	return &Network{DHT: 2, Clocks: []time.Duration{-5}, Bootstrap: []Contact{{Peer: "p", Refused: true}}}, e.err
}
func (e *engine) WriteMetrics(w io.Writer) error {
	if e.err != nil {
		return e.err
	}
	_, err := io.WriteString(w, "# TYPE a counter\na 1\n")
	return err
}
func (e *engine) Models(context.Context) ([]Model, error) {
	return []Model{{ID: "m", Name: "n"}}, e.err
}
func (e *engine) Peers(context.Context) ([]Peer, error) {
	return []Peer{{Peer: "p", Layers: Layers{3, 2}}}, e.err
}
func (e *engine) Search(_ context.Context, q SearchRequest) ([]Listing, error) {
	e.asked = q
	return []Listing{{Model: "m", Name: "n", Copies: []int{2, 1}}}, e.err
}
func (e *engine) Plan(_ context.Context, q PlanRequest) (*PlanReply, error) {
	e.asked = q
	return &PlanReply{Model: q.Model, Plan: route.Plan{Shape: route.Across, Decoder: "d"}, Explain: "words\n"}, e.err
}
func (e *engine) Invite(_ context.Context, q InviteRequest) (*InviteReply, error) {
	e.asked = q
	return &InviteReply{Invite: "come in"}, e.err
}

func (e *engine) Members(context.Context) (*MembersReply, error) {
	return &MembersReply{Members: []Member{{Peer: "p", Role: "client"}}, All: true}, e.err
}
func (e *engine) SetOwner(_ context.Context, q OwnerRequest) error {
	e.asked = q
	return e.err
}
func (e *engine) Revoke(_ context.Context, q RevokeRequest) error {
	e.asked = q
	return e.err
}

func (e *engine) Collect(_ context.Context, q CollectRequest) (*CollectReply, error) {
	e.asked = q
	return &CollectReply{Models: []Collected{{ID: "m", Free: 5}}, Bytes: 5}, e.err
}
func (e *engine) Pin(_ context.Context, q PinRequest) (*Model, error) {
	e.asked = q
	return &Model{ID: "pinned"}, e.err
}

func (e *engine) Pause(_ context.Context, q DrainRequest) (*DrainReply, error) {
	e.asked = q
	return &DrainReply{HandedOver: 3}, e.err
}
func (e *engine) Block(_ context.Context, q BlockRequest) (*Blocked, error) {
	e.asked = q
	return &Blocked{Peers: []string{q.What}}, e.err
}
func (e *engine) Resume(context.Context) error {
	e.asked = "resume"
	return e.err
}

func (e *engine) work(ctx context.Context, q any, emit func(Event) error) error {
	e.asked = q
	for _, ev := range e.events {
		if err := emit(ev); err != nil {
			return err
		}
	}
	if e.hang {
		close(e.began)
		<-ctx.Done()
		e.ended <- ctx.Err()
		return ctx.Err()
	}
	for e.flood {
		if err := emit(Event{Kind: "text", Text: strings.Repeat("x", 1<<10)}); err != nil {
			e.emitErr <- err
			return err
		}
	}
	return e.err
}

func (e *engine) Tokenize(_ context.Context, q TokenizeRequest) ([]int32, error) {
	e.asked = q
	return []int32{7, 8}, e.err
}
func (e *engine) Model(ctx context.Context, q ModelRequest, emit func(Event) error) (*Model, error) {
	return &Model{ID: "described", Width: 64}, e.work(ctx, q, emit)
}
func (e *engine) Publish(ctx context.Context, q PublishRequest, emit func(Event) error) (*Model, error) {
	return &Model{ID: "published"}, e.work(ctx, q, emit)
}
func (e *engine) Pull(ctx context.Context, q PullRequest, emit func(Event) error) (*Model, error) {
	return &Model{ID: "pulled"}, e.work(ctx, q, emit)
}
func (e *engine) Serve(ctx context.Context, q ServeRequest, emit func(Event) error) (*Model, error) {
	return &Model{ID: "served"}, e.work(ctx, q, emit)
}
func (e *engine) Run(ctx context.Context, q RunRequest, emit func(Event) error) (*Account, error) {
	return e.account, e.work(ctx, q, emit)
}

// clients returns a client over each transport: a socket and a pipe.
func clients(t *testing.T, e Engine, stop func(DrainRequest)) map[string]*Client {
	dir := shortDir(t)
	l, err := Listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, l, e, stop) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	socket, err := Dial(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	pipe := InProcess(e)
	t.Cleanup(socket.Close)
	t.Cleanup(pipe.Close)
	return map[string]*Client{"socket": socket, "in process": pipe}
}

// shortDir returns a folder whose path leaves room for a socket's name.
func shortDir(t *testing.T) string {
	dir, err := os.MkdirTemp("", "ctl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func TestCalls(t *testing.T) {
	e := &engine{account: &Account{Text: "42", NewTokens: []int32{4, 2}, TTFT: time.Second}}
	for name, c := range clients(t, e, func(DrainRequest) {}) {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			st, err := c.Status(ctx)
			if err != nil || st.Peer != "p" || *st.Models[0].Held != (Layers{0, 9}) {
				t.Errorf("Status: %+v, %v", st, err)
			}
			if w, err := c.Network(ctx); err != nil || w.DHT != 2 || w.Clocks[0] != -5 || !w.Bootstrap[0].Refused {
				t.Errorf("Network: %+v, %v", w, err)
			}
			if m, err := c.Models(ctx); err != nil || len(m) != 1 || m[0].Name != "n" {
				t.Errorf("Models: %+v, %v", m, err)
			}
			if p, err := c.Peers(ctx); err != nil || len(p) != 1 || p[0].Layers != (Layers{3, 2}) {
				t.Errorf("Peers: %+v, %v", p, err)
			}
			if l, err := c.Search(ctx, SearchRequest{Words: "a b"}); err != nil || len(l) != 1 || l[0].Copies[1] != 1 || e.asked.(SearchRequest).Words != "a b" {
				t.Errorf("Search: %+v, %v; asked %+v", l, err, e.asked)
			}
			q := PlanRequest{Model: "m", PromptTokens: 7, Constraints: Constraints{Cuts: []int{1, 2}, Excluded: map[string]string{"x": "why"}}}
			p, err := c.Plan(ctx, q)
			if err != nil || p.Plan.Shape != route.Across || p.Explain != "words\n" || !reflect.DeepEqual(e.asked, q) {
				t.Errorf("Plan: %+v, %v; asked %+v", p, err, e.asked)
			}
			if r, err := c.Members(ctx); err != nil || !r.All || len(r.Members) != 1 || r.Members[0].Role != "client" {
				t.Errorf("Members: %+v, %v", r, err)
			}
			if err := c.Revoke(ctx, RevokeRequest{Peer: "p"}); err != nil || e.asked.(RevokeRequest).Peer != "p" {
				t.Errorf("Revoke: %+v, %v", e.asked, err)
			}
			if err := c.SetOwner(ctx, OwnerRequest{Peer: "p", Remove: true}); err != nil || e.asked != (OwnerRequest{"p", true}) {
				t.Errorf("SetOwner: %+v, %v", e.asked, err)
			}
			if r, err := c.Invite(ctx, InviteRequest{TTL: time.Hour}); err != nil || r.Invite != "come in" || e.asked.(InviteRequest).TTL != time.Hour {
				t.Errorf("Invite: %+v, %v", r, err)
			}
			if r, err := c.Pause(ctx, DrainRequest{}); err != nil || r.HandedOver != 3 || e.asked.(DrainRequest).Limit != nil {
				t.Errorf("Pause: %+v, %v; asked %+v", r, err, e.asked)
			}
			if b, err := c.Block(ctx, BlockRequest{What: "x", Unblock: true}); err != nil || b.Peers[0] != "x" || !e.asked.(BlockRequest).Unblock {
				t.Errorf("Block: %+v, %v; asked %+v", b, err, e.asked)
			}
			if err := c.Resume(ctx); err != nil || e.asked != "resume" {
				t.Errorf("Resume: %v; asked %+v", err, e.asked)
			}
			if r, err := c.Collect(ctx, CollectRequest{Model: "m", Keep: &Layers{1, 2}, Free: true}); err != nil || r.Bytes != 5 || r.Models[0].ID != "m" || *e.asked.(CollectRequest).Keep != (Layers{1, 2}) {
				t.Errorf("Collect: %+v, %v; asked %+v", r, err, e.asked)
			}
			if m, err := c.Pin(ctx, PinRequest{Model: "m", Unpin: true}); err != nil || m.ID != "pinned" || !e.asked.(PinRequest).Unpin {
				t.Errorf("Pin: %+v, %v; asked %+v", m, err, e.asked)
			}
			if tokens, err := c.Tokenize(ctx, TokenizeRequest{Text: "a", Special: true}); err != nil || !slices.Equal(tokens, []int32{7, 8}) || !e.asked.(TokenizeRequest).Special {
				t.Errorf("Tokenize: %v, %v; asked %+v", tokens, err, e.asked)
			}
			if m, err := c.Model(ctx, ModelRequest{Model: "m"}, nil); err != nil || m.ID != "described" || m.Width != 64 || e.asked.(ModelRequest).Model != "m" {
				t.Errorf("Model: %+v, %v; asked %+v", m, err, e.asked)
			}
			if m, err := c.Publish(ctx, PublishRequest{Path: "f"}, nil); err != nil || m.ID != "published" {
				t.Errorf("Publish: %+v, %v", m, err)
			}
			if m, err := c.Pull(ctx, PullRequest{Model: "m", Layers: &Layers{1, 2}}, nil); err != nil || m.ID != "pulled" || *e.asked.(PullRequest).Layers != (Layers{1, 2}) {
				t.Errorf("Pull: %+v, %v", m, err)
			}
			if m, err := c.Serve(ctx, ServeRequest{Model: "m", NoDecode: true}, nil); err != nil || m.ID != "served" || !e.asked.(ServeRequest).NoDecode {
				t.Errorf("Serve: %+v, %v", m, err)
			}
			rq := RunRequest{Model: "m", Messages: []Message{{"user", "hello"}}, Sampling: Sampling{Seed: 1 << 63, Temperature: 0.1}}
			a, err := c.Run(ctx, rq, nil)
			if err != nil || !reflect.DeepEqual(a, e.account) || !reflect.DeepEqual(e.asked, rq) {
				t.Errorf("Run: %+v, %v; asked %+v", a, err, e.asked)
			}
		})
	}
}

func TestEventsArriveInOrder(t *testing.T) {
	want := []Event{{Kind: "progress", Phase: "pull", Done: 1, Total: 2}, {Kind: "plan", Plan: &PlanReply{Explain: "x"}}, {Kind: "text", Text: "é\n\u2028", Token: 7}}
	for name, c := range clients(t, &engine{events: want}, func(DrainRequest) {}) {
		var got []Event
		if _, err := c.Run(t.Context(), RunRequest{}, func(ev Event) { got = append(got, ev) }); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

func TestErrorsKeepTheirText(t *testing.T) {
	const text = "no model \"x\": none is held here"
	for name, c := range clients(t, &engine{err: errors.New(text), events: []Event{{Kind: "text", Text: "a"}}}, func(DrainRequest) {}) {
		_, status := c.Status(t.Context())
		_, plan := c.Plan(t.Context(), PlanRequest{})
		_, run := c.Run(t.Context(), RunRequest{}, nil)
		_, pull := c.Pull(t.Context(), PullRequest{}, nil)
		for call, err := range map[string]error{"status": status, "plan": plan, "run": run, "pull": pull} {
			if err == nil || err.Error() != text {
				t.Errorf("%s: %s: %v", name, call, err)
			}
		}
	}
}

// patience is how long tests wait for what must happen: others may have the processor meanwhile.
const patience = 2 * time.Minute

// TestCancel ends a client's request: the node's work must end with it.
func TestCancel(t *testing.T) {
	e := &engine{hang: true, ended: make(chan error, 1)}
	for name, c := range clients(t, e, func(DrainRequest) {}) {
		e.began = make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-e.began
			cancel()
		}()
		if _, err := c.Run(ctx, RunRequest{Model: "m"}, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
		select {
		case err := <-e.ended:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: the work ended with %v", name, err)
			}
		case <-time.After(patience):
			t.Errorf("%s: the work goes on without its client", name)
		}
	}
}

// TestEmitFails lets a client go while the node talks.
func TestEmitFails(t *testing.T) {
	e := &engine{flood: true, emitErr: make(chan error, 1)}
	for name, c := range clients(t, e, func(DrainRequest) {}) {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := c.Run(ctx, RunRequest{}, func(Event) { cancel() })
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
		select {
		case <-e.emitErr:
		case <-time.After(patience):
			t.Errorf("%s: emit goes on without an error", name)
		}
	}
}

func TestShutdown(t *testing.T) {
	stopped := make(chan DrainRequest, 2)
	all := clients(t, &engine{}, func(q DrainRequest) { stopped <- q })
	limit := 5 * time.Second
	if err := all["socket"].Shutdown(t.Context(), DrainRequest{Limit: &limit}); err != nil {
		t.Fatal(err)
	}
	select {
	case q := <-stopped:
		if q.Limit == nil || *q.Limit != limit {
			t.Errorf("stopped with the limit %v", q.Limit)
		}
	case <-time.After(patience):
		t.Error("nobody was told to stop")
	}
}

// TestCloseEndsWork closes the server and the in-process client under way.
func TestCloseEndsWork(t *testing.T) {
	e := &engine{hang: true, began: make(chan struct{}), ended: make(chan error, 1)}
	c := InProcess(e)
	failed := make(chan error, 1)
	go func() {
		_, err := c.Run(context.Background(), RunRequest{}, nil)
		failed <- err
	}()
	<-e.began
	c.Close()
	if err := <-failed; err == nil {
		t.Error("the run succeeded on a closed node")
	}
	<-e.ended
	if _, err := c.Status(t.Context()); err == nil {
		t.Error("a closed client answers")
	}
}

func TestRequestsAreRefused(t *testing.T) {
	h := Handler(&engine{}, func(DrainRequest) {})
	for _, test := range []struct {
		method, path, body string
		code               int
	}{
		{"POST", "/v1/run", `{`, 400},
		{"POST", "/v1/run", ``, 400},
		{"POST", "/v1/run", `{"modl":"x"}`, 400},
		{"POST", "/v1/run", `{"model":"x"} {}`, 400},
		{"POST", "/v1/run", `{"max_new_tokens":1e99}`, 400},
		{"POST", "/v1/plan", `{"cuts":["a"]}`, 400},
		{"POST", "/v1/shutdown", `{"limit_ns":"soon"}`, 400},
		{"POST", "/v1/plan", `{"model":"` + strings.Repeat("x", maxRequest) + `"}`, 400},
		{"GET", "/metrics", ``, 200},
		{"GET", "/v1/run", ``, 405},
		{"POST", "/v1/status", ``, 405},
		{"GET", "/v2/status", ``, 404},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(test.method, test.path, strings.NewReader(test.body)))
		if w.Code != test.code {
			t.Errorf("%s %s %.40q: %d, want %d", test.method, test.path, test.body, w.Code, test.code)
		}
		var ev Event
		if test.code == 400 && (json.Unmarshal(w.Body.Bytes(), &ev) != nil || !strings.HasPrefix(ev.Error, "request: ")) {
			t.Errorf("%s %s %.40q: answer %q", test.method, test.path, test.body, w.Body)
		}
	}
}

// TestOddServers talks to things that aren't a node.
func TestOddServers(t *testing.T) {
	for name, f := range map[string]http.HandlerFunc{
		"not found": http.NotFound,
		"no JSON":   func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("hello")) },
		"cut short": func(w http.ResponseWriter, _ *http.Request) {
			w.Write([]byte(`{"kind":"text","text":"a"}` + "\n" + `{"kind":"do`))
		},
		"no last event": func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(`{"kind":"text","text":"a"}` + "\n")) },
		"bad status":    func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500); w.Write([]byte(`{"kind":"error"}`)) },
	} {
		s := httptest.NewServer(f)
		c := NewClient(func(ctx context.Context) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", s.Listener.Addr().String())
		})
		if _, err := c.Run(t.Context(), RunRequest{}, nil); err == nil {
			t.Errorf("%s: no error", name)
		}
		c.Close()
		s.Close()
	}
}

func TestSocket(t *testing.T) {
	dir := shortDir(t)
	if _, err := Dial(t.Context(), dir); !errors.Is(err, ErrNoDaemon) {
		t.Errorf("no socket: %v", err)
	}
	l, err := Listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(Socket(dir))
	if err != nil || st.Mode().Perm() != 0o600 && os.PathSeparator == '/' {
		t.Errorf("socket: %v, %v", st.Mode(), err)
	}
	if _, err := Listen(dir); err == nil || !strings.Contains(err.Error(), "another node") {
		t.Errorf("second node: %v", err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // as a killed node leaves it
	l.Close()
	if _, err := Dial(t.Context(), dir); !errors.Is(err, ErrNoDaemon) {
		t.Errorf("dead socket: %v", err)
	}
	if l, err = Listen(dir); err != nil {
		t.Fatalf("the dead node's socket is in the way: %v", err)
	}
	l.Close()
	if _, err := os.Stat(Socket(dir)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a closed node leaves its socket: %v", err)
	}
	long := filepath.Join(dir, strings.Repeat("x", 100))
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(long); err == nil || !strings.Contains(err.Error(), "--data") {
		t.Errorf("long path: %v", err)
	}
	if _, err := Dial(t.Context(), long); !errors.Is(err, ErrNoDaemon) {
		t.Errorf("long path: %v", err)
	}
	if _, err := Listen(filepath.Join(dir, "missing")); err == nil {
		t.Error("a folder that isn't there has a socket")
	}
}
