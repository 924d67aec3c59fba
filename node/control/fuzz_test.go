package control

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"testing"
)

// FuzzHandler sends any bytes to every path: answers are JSON, and nothing
// panics.
func FuzzHandler(f *testing.F) {
	paths := []string{"/v1/plan", "/v1/invite", "/v1/publish", "/v1/pull", "/v1/serve", "/v1/run", "/v1/pause", "/v1/resume", "/v1/search", "/v1/shutdown"}
	for i, body := range []string{`{}`, `{"model":"x","prompt_tokens":3,"cuts":[1,2],"excluded":{"a":"b"}}`, `{"path":"f"}`, `{"layers":{"first":0,"last":9}}`,
		`{"role":"member","ttl_ns":5}`, `{"messages":[{"role":"user","content":"hi"}],"seed":18446744073709551615,"temperature":0.5}`, `{"limit_ns":5}`, `{"words":"a b"}`, `[]`, `{"a":`} {
		f.Add(uint8(i), []byte(body))
	}
	h := Handler(&engine{}, func(DrainRequest) {})
	f.Fuzz(func(t *testing.T, which uint8, body []byte) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("POST", paths[int(which)%len(paths)], bytes.NewReader(body)))
		d := json.NewDecoder(w.Body)
		for d.More() {
			var v any
			if err := d.Decode(&v); err != nil {
				t.Fatalf("the answer to %q is no JSON: %v", body, err)
			}
		}
		if w.Code != 200 && w.Code != 400 {
			t.Fatalf("status %d for %q", w.Code, body)
		}
	})
}
