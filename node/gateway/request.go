package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/starling-swarm/starling/session"
)

// DefaultMaxNew is how many tokens an answer has at most where a request doesn't say: memory for them is reserved along the route.
const DefaultMaxNew = 2048

const (
	maxChoices = 16 // answers to one request
	maxStops   = 16 // texts that end an answer, each of at most
	maxStop    = 1024
)

// sampled is what requests for text have in common. Pointers are nil where a field is absent or null.
type sampled struct {
	Model               string             `json:"model"`
	Stream              bool               `json:"stream"`
	StreamOptions       *streamOptions     `json:"stream_options"`
	N                   *int               `json:"n"`
	MaxTokens           *int               `json:"max_tokens"`
	MaxCompletionTokens *int               `json:"max_completion_tokens"`
	Temperature         *float64           `json:"temperature"`
	TopP                *float64           `json:"top_p"`
	Seed                *int64             `json:"seed"`
	Stop                texts              `json:"stop"`
	FrequencyPenalty    *float64           `json:"frequency_penalty"`
	PresencePenalty     *float64           `json:"presence_penalty"`
	LogitBias           map[string]float64 `json:"logit_bias"`

	// llama.cpp's
	TopK          *int     `json:"top_k"`
	MinP          *float64 `json:"min_p"`
	TypicalP      *float64 `json:"typical_p"`
	RepeatPenalty *float64 `json:"repeat_penalty"`
	RepeatLastN   *int     `json:"repeat_last_n"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// texts are what "stop" has: a text or a list of texts.
type texts []string

// UnmarshalJSON implements json.Unmarshaler.
func (t *texts) UnmarshalJSON(b []byte) error {
	var one *string
	if json.Unmarshal(b, &one) == nil {
		if *t = nil; one != nil {
			*t = texts{*one}
		}
		return nil
	}
	if json.Unmarshal(b, (*[]string)(t)) != nil {
		return badField("stop", "write a text or a list of texts")
	}
	return nil
}

// decode reads a request's body. Errors name the field.
func decode(r *http.Request, q any) error {
	d := json.NewDecoder(r.Body)
	err := d.Decode(q)
	if err == nil {
		if _, err = d.Token(); err == io.EOF { // read to the end: only then does the server watch for the client to leave
			return nil
		}
		err = errors.New("something follows the JSON object")
	}
	var big *http.MaxBytesError
	var kind *json.UnmarshalTypeError
	var api *apiError
	switch {
	case errors.As(err, &api):
		return api
	case errors.As(err, &big):
		return &apiError{Status: http.StatusRequestEntityTooLarge, Type: invalidRequest, Message: fmt.Sprintf("the body has more than %d bytes", big.Limit)}
	case errors.As(err, &kind) && kind.Field != "":
		field := strings.TrimPrefix(kind.Field, "sampled.")
		return badField(field, "%s where %s belongs", kind.Value, kindName(kind.Type.Kind().String()))
	}
	return &apiError{Status: http.StatusBadRequest, Type: invalidRequest, Message: "the body is no JSON object: " + err.Error()}
}

// kindName says in JSON's terms what a Go kind is.
func kindName(kind string) string {
	switch {
	case kind == "string":
		return "a text"
	case kind == "bool":
		return "true or false"
	case strings.HasPrefix(kind, "int"), strings.HasPrefix(kind, "float"):
		return "a number"
	case kind == "slice":
		return "a list"
	}
	return "an object"
}

// request returns what sessions are asked for. left is how many tokens the context has room for behind the prompt.
func (q *sampled) request(left int) (session.Request, error) {
	r := session.Request{Stop: q.Stop, MaxNew: min(DefaultMaxNew, max(left, 1)),
		Sampling: session.Sampling{Temperature: 1, TopP: 1, TypicalP: 1, RepetitionPenalty: 1, TemperatureExponent: 1, PenaltyLastN: 64, Seed: rand.Uint64()}}
	for name, n := range map[string]*int{"max_tokens": q.MaxTokens, "max_completion_tokens": q.MaxCompletionTokens} {
		if n == nil {
			continue
		}
		if *n < 1 {
			return r, badField(name, "%d: ask for at least one token", *n)
		}
		r.MaxNew = *n
	}
	if q.MaxTokens != nil && q.MaxCompletionTokens != nil && *q.MaxTokens != *q.MaxCompletionTokens {
		return r, badField("max_tokens", "%d, and max_completion_tokens is %d: leave one of them out", *q.MaxTokens, *q.MaxCompletionTokens)
	}
	for _, f := range []struct {
		name        string
		given       *float64
		least, most float64
		to          *float32
	}{
		{"temperature", q.Temperature, 0, 2, &r.Temperature}, {"top_p", q.TopP, 0, 1, &r.TopP}, {"min_p", q.MinP, 0, 1, &r.MinP}, {"typical_p", q.TypicalP, 0, 1, &r.TypicalP},
		{"frequency_penalty", q.FrequencyPenalty, -2, 2, &r.FrequencyPenalty}, {"presence_penalty", q.PresencePenalty, -2, 2, &r.PresencePenalty},
		{"repeat_penalty", q.RepeatPenalty, 0, 10, &r.RepetitionPenalty},
	} {
		if f.given == nil {
			continue
		}
		if !(*f.given >= f.least && *f.given <= f.most) {
			return r, badField(f.name, "%v: write a number from %v to %v", *f.given, f.least, f.most)
		}
		*f.to = float32(*f.given)
	}
	if q.TopK != nil {
		if *q.TopK < 0 {
			return r, badField("top_k", "%d: write 0, for all tokens, or more", *q.TopK)
		}
		r.TopK = *q.TopK
	}
	if q.RepeatLastN != nil {
		if *q.RepeatLastN < -1 {
			return r, badField("repeat_last_n", "%d: write how many tokens, or -1 for all", *q.RepeatLastN)
		}
		r.PenaltyLastN = *q.RepeatLastN
	}
	if q.Seed != nil {
		r.Seed = uint64(*q.Seed)
	}
	if len(q.Stop) > maxStops {
		return r, badField("stop", "%d texts: at most %d", len(q.Stop), maxStops)
	}
	for _, s := range q.Stop {
		if s == "" || len(s) > maxStop {
			return r, badField("stop", "a text of %d bytes: write 1 to %d", len(s), maxStop)
		}
	}
	var err error
	r.LogitBias, err = biases(q.LogitBias)
	return r, err
}

// biases are ascending by token, so that the same request is the same.
func biases(given map[string]float64) (list []session.LogitBias, err error) {
	for token, x := range given {
		id, err := strconv.ParseInt(token, 10, 32)
		if err != nil || id < 0 {
			return nil, badField("logit_bias", "%q is no token's ID", token)
		}
		if math.IsNaN(x) || x < -100 || x > 100 {
			return nil, badField("logit_bias."+token, "%v: write a number from -100 to 100", x)
		}
		list = append(list, session.LogitBias{Token: int32(id), Bias: float32(x), Ban: x == -100})
	}
	slices.SortFunc(list, func(a, b session.LogitBias) int { return int(a.Token) - int(b.Token) })
	return list, nil
}

// choices returns how many answers are asked for.
func (q *sampled) choices() (int, error) {
	switch {
	case q.N == nil:
		return 1, nil
	case *q.N < 1 || *q.N > maxChoices:
		return 0, badField("n", "%d: ask for 1 to %d answers", *q.N, maxChoices)
	}
	return *q.N, nil
}

// refuse refuses the first field that is given and would change an answer. null and values that mean "no" are not given.
func refuse(fields map[string]json.RawMessage) error {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		switch string(fields[name]) {
		case "", "null", "false", "[]", "{}", `""`, `"none"`, "0":
		default:
			return badField(name, "not supported by this gateway yet; leave it out")
		}
	}
	return nil
}
