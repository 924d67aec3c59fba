package gateway

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/starling-swarm/starling/node/control"
)

// Whatever a body is, the gateway answers, and never with an error of its own.
func FuzzRequests(f *testing.F) {
	for _, body := range []string{
		`{"model":"Echo","messages":[{"role":"system","content":"a"},{"role":"user","content":[{"type":"text","text":"b"}]}],"stream":true,"stream_options":{"include_usage":true}}`,
		`{"messages":[{"role":"user","content":"a"}],"n":2,"stop":["x","y"],"logit_bias":{"5":-100},"logprobs":true,"top_logprobs":2,"temperature":0.5,"top_p":0.9,"seed":-1}`,
		`{"prompt":["a","b"],"max_tokens":3,"logprobs":1,"frequency_penalty":-2,"presence_penalty":2}`,
		`{"prompt":[[1,2],[3]],"top_k":4,"min_p":0.1,"typical_p":1,"repeat_penalty":1.1,"repeat_last_n":-1}`,
		`{"prompt":[1e9],"response_format":{"type":"text"},"tools":null}`,
	} {
		f.Add(true, body)
		f.Add(false, body)
	}
	client := control.InProcess(&standIn{})
	f.Cleanup(client.Close)
	h := New(Config{Client: client})
	f.Fuzz(func(t *testing.T, chat bool, body string) {
		path := "/v1/completions"
		if chat {
			path = "/v1/chat/completions"
		}
		r := httptest.NewRequest("POST", path, strings.NewReader(body))
		r.Host = "localhost"
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code >= 500 || w.Code == statusClosed {
			t.Errorf("status %d: %s", w.Code, w.Body)
		}
	})
}
