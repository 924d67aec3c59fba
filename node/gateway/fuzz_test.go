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
		f.Add(uint8(0), body)
		f.Add(uint8(1), body)
	}
	f.Add(uint8(2), `{"input":["a",""],"encoding_format":"base64","dimensions":2}`)
	client := control.InProcess(&standIn{})
	f.Cleanup(client.Close)
	h := New(Config{Client: client})
	paths := []string{"/v1/completions", "/v1/chat/completions", "/v1/embeddings"}
	f.Fuzz(func(t *testing.T, which uint8, body string) {
		path := paths[int(which)%len(paths)]
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
