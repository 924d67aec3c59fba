package gateway

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-swarm/starling/node/control"
	"github.com/starling-swarm/starling/route"
)

// standIn is a node whose model says the letters of its prompt backwards, a token each; seeds above 0 rotate them.
type standIn struct {
	control.Engine // nothing else is asked for
	fail           error
	hold           chan struct{} // if not nil, every token waits for one
	ended          chan error    // gets what each run ended with; nil: nobody waits for it
}

const modelID = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func (e *standIn) Models(context.Context) ([]control.Model, error) {
	return []control.Model{{ID: modelID, Name: "Echo", Arch: "llama", Context: 64, Peers: 2, Covered: true}, {ID: strings.Repeat("f", 64), Name: "Holes"}}, nil
}

func (e *standIn) Model(_ context.Context, q control.ModelRequest, _ func(control.Event) error) (*control.Model, error) {
	if q.Model != "Echo" && q.Model != "" && q.Model != modelID {
		return nil, &control.Error{Kind: control.UnknownModel, Text: `no model "` + q.Model + `"`, Near: []string{"Echo"}}
	}
	return &control.Model{ID: modelID, Name: "Echo", Context: 64, Vocab: 256, NumLayers: 2, Width: 2}, nil
}

func (e *standIn) Tokenize(_ context.Context, q control.TokenizeRequest) (tokens []int32, _ error) {
	text := q.Text
	for _, m := range q.Messages {
		text += m.Role[:1] + m.Content
	}
	for _, b := range []byte(text) {
		tokens = append(tokens, int32(b))
	}
	return tokens, nil
}

func (e *standIn) Run(ctx context.Context, q control.RunRequest, emit func(control.Event) error) (a *control.Account, err error) {
	if e.ended != nil {
		defer func() { e.ended <- err }()
	}
	if e.fail != nil {
		return nil, e.fail
	}
	if err := emit(control.Event{Kind: "plan", Plan: &control.PlanReply{Plan: route.Plan{Decoder: "D", Stages: []route.Stage{{Peer: "S"}}}}}); err != nil {
		return nil, err
	}
	a = &control.Account{Reason: "length", Reused: 3}
	if p := q.Probe; p != nil { // a row is a token and 1
		rows := &control.Rows{Layer: p.Layers[0], First: p.First, Count: p.Last - p.First}
		for _, t := range q.Tokens[p.First:p.Last] {
			rows.Data, _ = binary.Append(rows.Data, binary.LittleEndian, []float32{float32(t), 1})
		}
		return a, emit(control.Event{Kind: "rows", Rows: rows})
	}
	for i := range min(q.MaxNew, len(q.Tokens)) {
		if e.hold != nil {
			select {
			case <-e.hold:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		t := q.Tokens[len(q.Tokens)-1-int((uint64(i)+q.Seed)%uint64(len(q.Tokens)))]
		ev := control.Event{Kind: "text", Text: string(rune(t)), Token: t}
		for k := range q.Logprobs + min(q.Logprobs, 1) {
			ev.Logprobs = append(ev.Logprobs, control.Logprob{Token: t, Text: string(rune(t)), Logprob: -float32(k)})
		}
		if slices.Contains(q.Stop, ev.Text) {
			a.Reason = "stop"
			break
		}
		if err := emit(ev); err != nil {
			return nil, err
		}
		a.NewTokens = append(a.NewTokens, t)
	}
	return a, nil
}

// serve starts a gateway to a node.
func serve(t *testing.T, e control.Engine, keys ...string) *httptest.Server {
	t.Helper()
	client := control.InProcess(e)
	s := httptest.NewServer(New(Config{Client: client, Keys: keys}))
	t.Cleanup(func() {
		s.Close()
		client.Close()
	})
	return s
}

// ask posts a body, and returns the status, the reply and its header.
func ask(t *testing.T, s *httptest.Server, path, body string, header ...string) (int, string, http.Header) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "POST", s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	reply, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(reply.Body); err != nil {
		t.Fatal(err)
	}
	return reply.StatusCode, b.String(), reply.Header
}

// events returns the data of a stream's events.
func events(t *testing.T, stream string) (list []string) {
	t.Helper()
	for line := range strings.Lines(stream) {
		if line = strings.TrimSuffix(line, "\n"); line == "" {
			continue
		}
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			t.Fatalf("line %q", line)
		}
		list = append(list, data)
	}
	return list
}

// same reports whether two JSON texts have the same value, but for IDs and times.
func same(t *testing.T, got, want string) bool {
	t.Helper()
	var values [2]map[string]any
	for i, text := range []string{got, want} {
		if err := json.Unmarshal([]byte(text), &values[i]); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		delete(values[i], "id")
		delete(values[i], "created")
	}
	return reflect.DeepEqual(values[0], values[1])
}

// Whole answers have OpenAI's shape.
func TestChat(t *testing.T) {
	s := serve(t, &standIn{})
	status, got, header := ask(t, s, "/v1/chat/completions", `{"model":"Echo","temperature":0,"seed":0,"max_completion_tokens":2,"user":"x",
		"messages":[{"role":"developer","content":"ab"},{"role":"user","content":[{"type":"text","text":"c"},{"type":"text","text":"d"}]}],"logprobs":true,"top_logprobs":1}`)
	want := `{"object":"chat.completion","model":"Echo","system_fingerprint":"fp_0123456789ab","choices":[{"index":0,"message":{"role":"assistant","content":"dc","refusal":null},
		"logprobs":{"content":[{"token":"d","logprob":0,"bytes":[100],"top_logprobs":[{"token":"d","logprob":-1,"bytes":[100]}]},{"token":"c","logprob":0,"bytes":[99],"top_logprobs":[{"token":"c","logprob":-1,"bytes":[99]}]}]},
		"finish_reason":"length"}],"usage":{"prompt_tokens":6,"completion_tokens":2,"total_tokens":8,"prompt_tokens_details":{"cached_tokens":3}}}`
	if status != 200 || !same(t, got, want) {
		t.Errorf("status %d:\n%s\nwant\n%s", status, got, want)
	}
	if peers := header.Get("Starling-Peers"); peers != "D,S" {
		t.Errorf("peers %q", peers)
	}
	status, got, _ = ask(t, s, "/v1/chat/completions", `{"model":"Echo","temperature":0,"seed":0,"n":2,"stop":"u","max_tokens":3,"messages":[{"role":"user","content":"ab"}]}`)
	want = `{"object":"chat.completion","model":"Echo","system_fingerprint":"fp_0123456789ab","choices":[{"index":0,"message":{"role":"assistant","content":"ba","refusal":null},"logprobs":null,"finish_reason":"stop"},
		{"index":1,"message":{"role":"assistant","content":"a","refusal":null},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":3,"total_tokens":6,"prompt_tokens_details":{"cached_tokens":3}}}`
	if status != 200 || !same(t, got, want) {
		t.Errorf("status %d:\n%s\nwant\n%s", status, got, want)
	}
}

// A stream begins with the role alone, has one ID throughout, says why it ended in an event without text, counts tokens only where it is asked to,
// and ends with [DONE].
func TestChatStream(t *testing.T) {
	s := serve(t, &standIn{})
	for _, counted := range []bool{true, false} {
		status, got, header := ask(t, s, "/v1/chat/completions", fmt.Sprintf(`{"model":"Echo","seed":0,"max_tokens":2,"stream":true,"stream_options":{"include_usage":%v},"messages":[{"role":"user","content":"ab"}]}`, counted))
		head := `{"object":"chat.completion.chunk","model":"Echo","system_fingerprint":"fp_0123456789ab","choices":[`
		want := []string{
			head + `{"index":0,"delta":{"role":"assistant","content":null},"logprobs":null,"finish_reason":null}]}`,
			head + `{"index":0,"delta":{"content":"b"},"logprobs":null,"finish_reason":null}]}`,
			head + `{"index":0,"delta":{"content":"a"},"logprobs":null,"finish_reason":null}]}`,
			head + `{"index":0,"delta":{},"logprobs":null,"finish_reason":"length"}]}`,
		}
		if counted {
			want = append(want, head+`],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5,"prompt_tokens_details":{"cached_tokens":3}}}`)
		}
		list := events(t, got)
		if status != 200 || len(list) != len(want)+1 || list[len(list)-1] != "[DONE]" {
			t.Fatalf("status %d, events:\n%s", status, got)
		}
		ids := map[string]bool{}
		for i, w := range want {
			var ev struct{ ID string }
			if err := json.Unmarshal([]byte(list[i]), &ev); err != nil {
				t.Fatal(err)
			}
			ids[ev.ID] = true
			if !same(t, list[i], w) {
				t.Errorf("event %d: %s\nwant %s", i, list[i], w)
			}
		}
		if len(ids) != 1 || header.Get("Content-Type") != "text/event-stream" || header.Get("Starling-Peers") != "D,S" {
			t.Errorf("IDs %v, header %v", ids, header)
		}
	}
}

// Completions take texts and tokens, one or several.
func TestCompletions(t *testing.T) {
	s := serve(t, &standIn{})
	status, got, _ := ask(t, s, "/v1/completions", `{"model":"Echo","seed":0,"temperature":0,"max_tokens":2,"prompt":["ab","xyz"],"n":2,"logprobs":0}`)
	logprobs := func(a, b string) string {
		return fmt.Sprintf(`{"tokens":[%q,%q],"token_logprobs":[0,0],"top_logprobs":[{},{}],"text_offset":[0,1]}`, a, b)
	}
	want := `{"object":"text_completion","model":"Echo","system_fingerprint":"fp_0123456789ab","choices":[{"index":0,"text":"ba","logprobs":` + logprobs("b", "a") + `,"finish_reason":"length"},
		{"index":1,"text":"ab","logprobs":` + logprobs("a", "b") + `,"finish_reason":"length"},{"index":2,"text":"zy","logprobs":` + logprobs("z", "y") + `,"finish_reason":"length"},
		{"index":3,"text":"yx","logprobs":` + logprobs("y", "x") + `,"finish_reason":"length"}],"usage":{"prompt_tokens":5,"completion_tokens":8,"total_tokens":13,"prompt_tokens_details":{"cached_tokens":6}}}`
	if status != 200 || !same(t, got, want) {
		t.Errorf("status %d:\n%s\nwant\n%s", status, got, want)
	}
	status, got, _ = ask(t, s, "/v1/completions", `{"model":"Echo","seed":0,"max_tokens":2,"prompt":[97,98],"stream":true}`)
	text := ""
	for _, ev := range events(t, got) {
		var r completionReply
		if ev != "[DONE]" && json.Unmarshal([]byte(ev), &r) == nil {
			text += r.Choices[0].Text
		}
	}
	if status != 200 || text != "ba" || !strings.HasSuffix(got, "data: [DONE]\n\n") {
		t.Errorf("status %d: %q in\n%s", status, text, got)
	}
}

// An embedding is the mean of what the last layer leaves, at length 1.
func TestEmbeddings(t *testing.T) {
	s := serve(t, &standIn{})
	// "ab" has rows (97, 1) and (98, 1); token 0 has (0, 1).
	long := math.Sqrt(195*195 + 2*2)
	want := fmt.Sprintf(`{"object":"list","model":"Echo","data":[{"object":"embedding","index":0,"embedding":[%v,%v]}],"usage":{"prompt_tokens":2,"total_tokens":2}}`, float32(195/long), float32(2/long))
	if status, got, header := ask(t, s, "/v1/embeddings", `{"model":"Echo","input":"ab"}`); status != 200 || !same(t, got, want) || header.Get("Starling-Peers") != "D,S" {
		t.Errorf("status %d: %s\nwant %s", status, got, want)
	}
	want = `{"object":"list","model":"Echo","data":[{"object":"embedding","index":0,"embedding":"AAAAAAAAgD8="},{"object":"embedding","index":1,"embedding":"AAAAAAAAgD8="}],"usage":{"prompt_tokens":3,"total_tokens":3}}`
	if status, got, _ := ask(t, s, "/v1/embeddings", `{"model":"Echo","input":[[0],[0,0]],"encoding_format":"base64"}`); status != 200 || !same(t, got, want) {
		t.Errorf("status %d: %s\nwant %s", status, got, want)
	}
}

// Bad requests are refused with the name of the field.
func TestBadRequests(t *testing.T) {
	s := serve(t, &standIn{})
	chat := func(more string) string {
		return `{"model":"Echo","messages":[{"role":"user","content":"a"}]` + more + `}`
	}
	for _, c := range []struct {
		path, body string
		status     int
		param      string
	}{
		{"chat/completions", `{`, 400, ""},
		{"chat/completions", `[]`, 400, ""},
		{"chat/completions", chat("") + "{}", 400, ""},
		{"chat/completions", `{"model":"Echo"}`, 400, "messages"},
		{"chat/completions", `{"model":"Echo","messages":[]}`, 400, "messages"},
		{"chat/completions", `{"model":"Echo","messages":[{"role":"nobody","content":"a"}]}`, 400, "messages[0].role"},
		{"chat/completions", `{"model":"Echo","messages":[{"role":"user","content":7}]}`, 400, "messages[0].content"},
		{"chat/completions", `{"model":"Echo","messages":[{"role":"user","content":[{"type":"image_url"}]}]}`, 400, "messages[0].content[0].type"},
		{"chat/completions", `{"model":"Echo","messages":[{"role":"assistant","content":null,"tool_calls":[{"id":null}]}]}`, 400, "messages[0].tool_calls"},
		{"chat/completions", chat(`,"temperature":"hot"`), 400, "temperature"},
		{"chat/completions", chat(`,"temperature":2.5`), 400, "temperature"},
		{"chat/completions", chat(`,"temperature":-1`), 400, "temperature"},
		{"chat/completions", chat(`,"top_p":1.5`), 400, "top_p"},
		{"chat/completions", chat(`,"max_tokens":0`), 400, "max_tokens"},
		{"chat/completions", chat(`,"max_completion_tokens":-3`), 400, "max_completion_tokens"},
		{"chat/completions", chat(`,"max_tokens":1,"max_completion_tokens":2`), 400, "max_tokens"},
		{"chat/completions", chat(`,"n":0`), 400, "n"},
		{"chat/completions", chat(`,"n":99`), 400, "n"},
		{"chat/completions", chat(`,"stop":[""]`), 400, "stop"},
		{"chat/completions", chat(`,"stop":{"a":1}`), 400, "stop"},
		{"chat/completions", chat(`,"logit_bias":{"a":1}`), 400, "logit_bias"},
		{"chat/completions", chat(`,"logit_bias":{"1":101}`), 400, "logit_bias.1"},
		{"chat/completions", chat(`,"top_logprobs":3`), 400, "top_logprobs"},
		{"chat/completions", chat(`,"logprobs":true,"top_logprobs":21`), 400, "top_logprobs"},
		{"chat/completions", chat(`,"tools":[{"type":"function"}]`), 400, "tools"},
		{"chat/completions", chat(`,"response_format":{"type":"json_object"}`), 400, "response_format.type"},
		{"chat/completions", `{"model":"Echos","messages":[{"role":"user","content":"a"}]}`, 404, "model"},
		{"chat/completions", `{"model":"Echo","messages":[{"role":"user","content":"` + strings.Repeat("a", 99) + `"}]}`, 413, "messages"},
		{"completions", `{"model":"Echo","prompt":"` + strings.Repeat("a", 99) + `"}`, 413, "prompt"},
		{"embeddings", `{"model":"Echo","input":"` + strings.Repeat("a", 99) + `"}`, 413, "input"},
		{"completions", `{"model":"Echo"}`, 400, "prompt"},
		{"completions", `{"model":"Echo","prompt":{}}`, 400, "prompt"},
		{"completions", `{"model":"Echo","prompt":""}`, 400, "prompt"},
		{"completions", `{"model":"Echo","prompt":"a","suffix":"b"}`, 400, "suffix"},
		{"completions", `{"model":"Echo","prompt":"a","echo":true}`, 400, "echo"},
		{"embeddings", `{"model":"Echo"}`, 400, "input"},
		{"embeddings", `{"model":"Echo","input":7}`, 400, "input"},
		{"embeddings", `{"model":"Echo","input":["a",""]}`, 400, "input"},
		{"embeddings", `{"model":"Echo","input":"a","encoding_format":"int8"}`, 400, "encoding_format"},
		{"embeddings", `{"model":"Echo","input":"a","dimensions":1}`, 400, "dimensions"},
		{"nothing", `{}`, 404, ""},
	} {
		status, got, _ := ask(t, s, "/v1/"+c.path, c.body)
		var r struct {
			Error struct {
				Message, Type string
				Param         *string
			}
		}
		if err := json.Unmarshal([]byte(got), &r); err != nil || r.Error.Message == "" || r.Error.Type == "" {
			t.Errorf("%s: %s", c.body, got)
			continue
		}
		param := ""
		if r.Error.Param != nil {
			param = *r.Error.Param
		}
		if status != c.status || param != c.param {
			t.Errorf("%s: status %d, param %q, want %d and %q: %s", c.body, status, param, c.status, c.param, got)
		}
	}
	if _, got, _ := ask(t, s, "/v1/chat/completions", `{"model":"Echos","messages":[{"role":"user","content":"a"}]}`); !strings.Contains(got, "Echo") || !strings.Contains(got, "model_not_found") {
		t.Errorf("no near name in %s", got)
	}
	if _, got, _ := ask(t, s, "/v1/chat/completions", `{"model":"Echo","messages":[{"role":"user","content":"`+strings.Repeat("a", 99)+`"}]}`); !strings.Contains(got, "100") || !strings.Contains(got, "64") {
		t.Errorf("not both numbers in %s", got)
	}
}

// What a node can't do has a status that says what to do.
func TestNodeErrors(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		retry  string
	}{
		{&control.Error{Kind: control.Busy, Text: "busy", RetryAfter: 2500 * time.Millisecond}, 429, "3"},
		{&control.Error{Kind: control.Busy, Text: "busy"}, 429, "1"},
		{&control.Error{Kind: control.Loading, Text: "loading"}, 503, "5"},
		{&control.Error{Kind: control.NoRoute, Text: "no route"}, 503, "5"},
		{&control.Error{Kind: control.PeerLost, Text: "lost"}, 503, "5"},
		{&control.Error{Kind: control.BadRequest, Text: "bad"}, 400, ""},
		{errors.New("broken"), 500, ""},
	} {
		s := serve(t, &standIn{fail: c.err})
		for _, stream := range []bool{false, true} { // nothing has been said when it fails
			status, got, header := ask(t, s, "/v1/chat/completions", fmt.Sprintf(`{"messages":[{"role":"user","content":"a"}],"stream":%v}`, stream))
			if status != c.status || header.Get("Retry-After") != c.retry || !strings.Contains(got, c.err.Error()) {
				t.Errorf("%v, stream %v: status %d, retry after %q: %s", c.err, stream, status, header.Get("Retry-After"), got)
			}
		}
	}
}

// Who may ask: with keys whoever has one, without them who asks for this machine by its own name, and in either case no web page.
func TestAdmission(t *testing.T) {
	body := `{"messages":[{"role":"user","content":"a"}]}`
	open, locked := serve(t, &standIn{}), serve(t, &standIn{}, "alpha", "beta")
	for _, c := range []struct {
		s      *httptest.Server
		header []string
		status int
	}{
		{open, nil, 200},
		{open, []string{"Content-Type", "text/plain"}, 415},
		{locked, nil, 401},
		{locked, []string{"Authorization", "Bearer gamma"}, 401},
		{locked, []string{"Authorization", "Basic alpha"}, 401},
		{locked, []string{"Authorization", "Bearer beta"}, 200},
	} {
		status, got, header := ask(t, c.s, "/v1/chat/completions", body, c.header...)
		if status != c.status {
			t.Errorf("%v: status %d: %s", c.header, status, got)
		}
		if len(header.Values("Access-Control-Allow-Origin")) > 0 {
			t.Error("another site's pages may read answers")
		}
	}
	for host, status := range map[string]int{"localhost:4078": 200, "127.0.0.1": 200, "[::1]:80": 200, "evil.example": 403, "127.0.0.1.evil.example": 403, "10.0.0.7": 403} {
		r := httptest.NewRequest("GET", "/v1/models", nil)
		r.Host = host
		w := httptest.NewRecorder()
		open.Config.Handler.ServeHTTP(w, r)
		if w.Code != status {
			t.Errorf("host %s: status %d", host, w.Code)
		}
	}
}

// Models are listed if the swarm can compute them.
func TestModels(t *testing.T) {
	s := serve(t, &standIn{})
	for path, want := range map[string]string{
		"/v1/models":      `{"object":"list","data":[{"id":"Echo","object":"model","created":0,"owned_by":"swarm","hash":"` + modelID + `","architecture":"llama","context_length":64,"peers":2}]}`,
		"/v1/models/Echo": `{"id":"Echo","object":"model","created":0,"owned_by":"swarm","hash":"` + modelID + `","context_length":64,"peers":0}`,
	} {
		r, err := s.Client().Get(s.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		_, _ = b.ReadFrom(r.Body)
		r.Body.Close()
		if !same(t, b.String(), want) {
			t.Errorf("%s: %s", path, b.String())
		}
	}
}

// A client that leaves in the middle of a stream ends the run.
func TestClientLeaves(t *testing.T) {
	e := &standIn{hold: make(chan struct{}), ended: make(chan error, 1)}
	s := serve(t, e)
	ctx, leave := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, "POST", s.URL+"/v1/chat/completions", strings.NewReader(`{"messages":[{"role":"user","content":"ab"}],"stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	go func() { e.hold <- struct{}{} }() // one token
	reply, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	if line, err := bufio.NewReader(reply.Body).ReadString('\n'); err != nil || !strings.Contains(line, "assistant") {
		t.Fatal(line, err)
	}
	leave()
	select {
	case err := <-e.ended:
		if err == nil {
			t.Error("the run was completed")
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("the run goes on")
	}
}
