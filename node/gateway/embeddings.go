package gateway

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"math"
	"net/http"

	"github.com/starling-swarm/starling/session"
)

// maxInputs bounds the texts of one request for embeddings.
const maxInputs = 256

// embeddingRequest is the body of POST /v1/embeddings.
type embeddingRequest struct {
	Model      string `json:"model"`
	Input      inputs `json:"input"`
	Format     string `json:"encoding_format"`
	Dimensions *int   `json:"dimensions"`
}

// inputs are what to embed, written like prompts.
type inputs prompts

// UnmarshalJSON implements json.Unmarshaler.
func (p *inputs) UnmarshalJSON(b []byte) error {
	if (*prompts)(p).UnmarshalJSON(b) != nil {
		return badField("input", "write a text, a list of token IDs, or a list of either")
	}
	return nil
}

type embedding struct {
	Object string `json:"object"`
	Index  int    `json:"index"`
	Vector any    `json:"embedding"` // []float32, or its little-endian bytes in base64
}

// embeddings answers POST /v1/embeddings: of each input the mean of what the last layer leaves at its positions, before the final norm, divided by its Euclidean
// length.
func (g *gateway) embeddings(w http.ResponseWriter, r *http.Request) {
	var q embeddingRequest
	if err := decode(r, &q); err != nil {
		fail(w, err)
		return
	}
	var err error
	switch {
	case len(q.Input) == 0:
		err = badField("input", "write a text")
	case len(q.Input) > maxInputs:
		err = badField("input", "%d texts: at most %d", len(q.Input), maxInputs)
	case q.Format != "" && q.Format != "float" && q.Format != "base64":
		err = badField("encoding_format", "%q: write float or base64", q.Format)
	}
	if err != nil {
		fail(w, err)
		return
	}
	a, err := g.open(r.Context(), q.Model)
	if err != nil {
		fail(w, err)
		return
	}
	defer a.s.Close()
	m := a.s.Model()
	if q.Dimensions != nil && *q.Dimensions != m.Width {
		fail(w, badField("dimensions", "%d: this model's embeddings have %d; leave it out", *q.Dimensions, m.Width))
		return
	}
	list, tokens := make([]embedding, 0, len(q.Input)), 0
	for i, in := range q.Input {
		x, n, err := embed(r.Context(), a.s, in)
		if err != nil {
			fail(w, err)
			return
		}
		tokens += n
		e := embedding{Object: "embedding", Index: i, Vector: x}
		if q.Format == "base64" {
			b, _ := binary.Append(nil, binary.LittleEndian, x) // floats have a size
			e.Vector = base64.StdEncoding.EncodeToString(b)
		}
		list = append(list, e)
	}
	a.sign(w.Header())
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "model": describe(&m, nil).ID, "data": list,
		"usage": map[string]int{"prompt_tokens": tokens, "total_tokens": tokens}})
}

// embed makes s the session of one text, and returns its embedding, [Width], and how many tokens it has.
func embed(ctx context.Context, s *session.Session, in prompt) ([]float32, int, error) {
	err := s.Rewind(0)
	switch {
	case err != nil:
	case in.tokens != nil:
		err = s.Append(in.tokens...)
	default:
		err = s.AppendText(ctx, in.text)
	}
	if err != nil {
		return nil, 0, ofPrompt("input", err)
	}
	n := s.Len()
	if n == 0 {
		return nil, 0, badField("input", "a text without tokens has no embedding")
	}
	m := s.Model()
	rows, err := s.Hidden(ctx, []int{m.NumLayers}, 0, n)
	if err != nil {
		return nil, 0, err
	}
	return unit(rows[0], m.Width), n, nil
}

// unit returns the mean of rows of so many values, at length 1; sums are float64, in ascending order.
func unit(rows []float32, width int) []float32 {
	sum := make([]float64, width)
	for i, x := range rows {
		sum[i%width] += float64(x)
	}
	squares := 0.0
	for _, x := range sum {
		squares += x * x
	}
	by := 1 / math.Sqrt(squares) // the mean's factor drops out
	if squares == 0 {
		by = 0
	}
	mean := make([]float32, width)
	for i, x := range sum {
		mean[i] = float32(x * by)
	}
	return mean
}
