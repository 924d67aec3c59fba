package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/starling-swarm/starling/session"
)

// chatRequest is the body of POST /v1/chat/completions.
type chatRequest struct {
	sampled
	Messages    []chatMessage `json:"messages"`
	Logprobs    bool          `json:"logprobs"`
	TopLogprobs int           `json:"top_logprobs"`

	Tools          json.RawMessage `json:"tools"`
	ToolChoice     json.RawMessage `json:"tool_choice"`
	Functions      json.RawMessage `json:"functions"`
	ResponseFormat *struct {
		Type string `json:"type"`
	} `json:"response_format"`
	Modalities []string        `json:"modalities"`
	Audio      json.RawMessage `json:"audio"`
}

// chatMessage is one turn.
type chatMessage struct {
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"` // a text, parts, or null
	ToolCalls json.RawMessage `json:"tool_calls"`
}

// text returns a message's text; where says which message it is.
func (m *chatMessage) text(where string) (string, error) {
	var text *string
	if len(m.Content) == 0 || json.Unmarshal(m.Content, &text) == nil {
		if text == nil {
			return "", nil
		}
		return *text, nil
	}
	var parts []struct{ Type, Text string }
	if json.Unmarshal(m.Content, &parts) != nil {
		return "", badField(where+".content", "write a text or a list of parts")
	}
	var all strings.Builder
	for i, p := range parts {
		if p.Type != "text" {
			return "", badField(fmt.Sprintf("%s.content[%d].type", where, i), "%q: this gateway takes text", p.Type)
		}
		all.WriteString(p.Text)
	}
	return all.String(), nil
}

// conversation returns the messages as templates know them.
func (q *chatRequest) conversation() ([]session.Message, error) {
	if len(q.Messages) == 0 {
		return nil, badField("messages", "write at least one message")
	}
	var list []session.Message
	for i := range q.Messages {
		m, where := &q.Messages[i], fmt.Sprintf("messages[%d]", i)
		if err := refuse(map[string]json.RawMessage{where + ".tool_calls": m.ToolCalls}); err != nil {
			return nil, err
		}
		role := m.Role
		switch role {
		case "developer":
			role = "system"
		case "system", "user", "assistant":
		default:
			return nil, badField(where+".role", "%q: write system, developer, user or assistant", m.Role)
		}
		text, err := m.text(where)
		if err != nil {
			return nil, err
		}
		list = append(list, session.Message{Role: role, Content: text})
	}
	return list, nil
}

// check refuses what this gateway can't do.
func (q *chatRequest) check() error {
	if f := q.ResponseFormat; f != nil && f.Type != "text" {
		return badField("response_format.type", "%q: this gateway answers with text alone yet", f.Type)
	}
	for _, m := range q.Modalities {
		if m != "text" {
			return badField("modalities", "%q: this gateway answers with text", m)
		}
	}
	if q.TopLogprobs < 0 || q.TopLogprobs > 20 {
		return badField("top_logprobs", "%d: write 0 to 20", q.TopLogprobs)
	}
	if q.TopLogprobs > 0 && !q.Logprobs {
		return badField("top_logprobs", "set logprobs, too")
	}
	return refuse(map[string]json.RawMessage{"tools": q.Tools, "functions": q.Functions, "audio": q.Audio})
}

// chatReply is the whole answer, or one event of a stream.
type chatReply struct {
	ID          string       `json:"id"`
	Object      string       `json:"object"`
	Created     int64        `json:"created"`
	Model       string       `json:"model"`
	Fingerprint string       `json:"system_fingerprint"` // of the weights
	Choices     []chatChoice `json:"choices"`
	Usage       *usage       `json:"usage,omitempty"`
}

type chatChoice struct {
	Index    int           `json:"index"`
	Message  *chatTurn     `json:"message,omitempty"`
	Delta    *chatTurn     `json:"delta,omitempty"`
	Logprobs *chatLogprobs `json:"logprobs"`
	Finish   *string       `json:"finish_reason"`
}

// chatTurn is what an answer says, or a stream's next piece of it.
type chatTurn struct {
	Role    string
	Content *string // nil: null, where there is a role, else absent
	Refusal bool    // write "refusal": null, as whole answers have
}

// MarshalJSON implements json.Marshaler.
func (t *chatTurn) MarshalJSON() ([]byte, error) {
	m := map[string]any{}
	if t.Role != "" {
		m["role"], m["content"] = t.Role, t.Content
	} else if t.Content != nil {
		m["content"] = t.Content
	}
	if t.Refusal {
		m["refusal"] = nil
	}
	return json.Marshal(m)
}

// chatLogprobs are of an answer's tokens, or of a piece's.
type chatLogprobs struct {
	Content []chatLogprob `json:"content"`
}

type chatLogprob struct {
	tokenLogprob
	Top []tokenLogprob `json:"top_logprobs"`
}

type tokenLogprob struct {
	Token   string  `json:"token"`
	Logprob float32 `json:"logprob"`
	Bytes   []int   `json:"bytes"`
}

func newTokenLogprob(p session.Logprob) tokenLogprob {
	t := tokenLogprob{Token: p.Text, Logprob: p.Logprob, Bytes: []int{}}
	for _, b := range []byte(p.Text) {
		t.Bytes = append(t.Bytes, int(b))
	}
	return t
}

// logprobsOf returns a token's, with so many others; nil if none were asked for.
func logprobsOf(t session.Token, top int) *chatLogprobs {
	if len(t.Logprobs) == 0 {
		return nil
	}
	p := chatLogprob{tokenLogprob: newTokenLogprob(t.Logprobs[0]), Top: []tokenLogprob{}}
	for _, x := range t.Logprobs[1:min(1+top, len(t.Logprobs))] {
		p.Top = append(p.Top, newTokenLogprob(x))
	}
	return &chatLogprobs{Content: []chatLogprob{p}}
}

// chat answers POST /v1/chat/completions.
func (g *gateway) chat(w http.ResponseWriter, r *http.Request) {
	var q chatRequest
	if err := decode(r, &q); err != nil {
		fail(w, err)
		return
	}
	messages, err := q.conversation()
	n, nErr := q.choices()
	for _, e := range []error{err, nErr, q.check()} {
		if e != nil {
			fail(w, e)
			return
		}
	}
	a, err := g.open(r.Context(), q.Model)
	if err != nil {
		fail(w, err)
		return
	}
	defer a.s.Close()
	if err := a.s.Chat(r.Context(), messages); err != nil {
		fail(w, ofPrompt("messages", err))
		return
	}
	prompt := a.s.Len()
	req, err := q.request(a.s.Model().Context - prompt)
	if err != nil {
		fail(w, err)
		return
	}
	if q.Logprobs {
		req.Logprobs = max(q.TopLogprobs, 1)
	}
	m := a.s.Model()
	reply := chatReply{ID: newID("chatcmpl-"), Object: "chat.completion", Created: g.now().Unix(), Model: describe(&m, nil).ID, Fingerprint: "fp_" + m.ID[:12]}
	if q.Stream {
		q.stream(w, r, a, n, req, reply)
		return
	}
	reply.Choices = make([]chatChoice, n)
	text := make([]strings.Builder, n)
	var all usage
	for i := range reply.Choices {
		reply.Choices[i].Index = i
	}
	err = a.answers(r.Context(), n, req, func(i int, t session.Token) error {
		text[i].WriteString(t.Text)
		if p := logprobsOf(t, q.TopLogprobs); p != nil {
			if c := &reply.Choices[i]; c.Logprobs == nil {
				c.Logprobs = p
			} else {
				c.Logprobs.Content = append(c.Logprobs.Content, p.Content...)
			}
		}
		return nil
	}, func(i int, account *session.Account) error {
		content := text[i].String()
		reply.Choices[i].Message, reply.Choices[i].Finish = &chatTurn{Role: "assistant", Content: &content, Refusal: true}, &account.Reason
		a.mu.Lock()
		defer a.mu.Unlock()
		all.add(prompt, i == 0, account)
		return nil
	})
	if err != nil {
		fail(w, err)
		return
	}
	reply.Usage = &all
	a.sign(w.Header())
	writeJSON(w, http.StatusOK, reply)
}

// stream sends the answers as they come.
func (q *chatRequest) stream(w http.ResponseWriter, r *http.Request, a *asking, n int, req session.Request, reply chatReply) {
	out := newEventStream(w)
	out.begun = a.sign
	prompt := a.s.Len()
	reply.Object = "chat.completion.chunk"
	var all usage
	said := make([]bool, n)
	send := func(c chatChoice) error {
		ev := reply
		ev.Choices = []chatChoice{c}
		return out.send(ev)
	}
	begin := func(i int) error {
		if said[i] {
			return nil
		}
		said[i] = true
		return send(chatChoice{Index: i, Delta: &chatTurn{Role: "assistant"}})
	}
	err := a.answers(r.Context(), n, req, func(i int, t session.Token) error {
		if err := begin(i); err != nil {
			return err
		}
		p := logprobsOf(t, q.TopLogprobs)
		if t.Text == "" && p == nil {
			return nil
		}
		return send(chatChoice{Index: i, Delta: &chatTurn{Content: &t.Text}, Logprobs: p})
	}, func(i int, account *session.Account) error {
		if err := begin(i); err != nil {
			return err
		}
		a.mu.Lock()
		all.add(prompt, i == 0, account)
		a.mu.Unlock()
		return send(chatChoice{Index: i, Delta: &chatTurn{}, Finish: &account.Reason})
	})
	if err != nil {
		out.fail(err)
		return
	}
	if q.StreamOptions != nil && q.StreamOptions.IncludeUsage {
		reply.Choices, reply.Usage = []chatChoice{}, &all
		_ = out.send(reply) // the client may be gone
	}
	out.end()
}
