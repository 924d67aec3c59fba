package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/starling-swarm/starling/node/control"
)

// apiError is an error in OpenAI's shape.
type apiError struct {
	Status     int
	RetryAfter time.Duration // 0: not said
	Message    string
	Type       string
	Param      string // the field it is about; "": none
	Code       string
}

// The types of errors.
const (
	invalidRequest = "invalid_request_error"
	serverError    = "server_error"
)

// Error implements error.
func (e *apiError) Error() string { return e.Message }

// MarshalJSON writes null where OpenAI does.
func (e *apiError) MarshalJSON() ([]byte, error) {
	null := func(s string) any {
		if s == "" {
			return nil
		}
		return s
	}
	return json.Marshal(map[string]any{"error": map[string]any{"message": e.Message, "type": e.Type, "param": null(e.Param), "code": null(e.Code)}})
}

// badField is the error of a field that can't be taken.
func badField(param, format string, args ...any) *apiError {
	return &apiError{Status: http.StatusBadRequest, Type: invalidRequest, Param: param, Message: param + ": " + fmt.Sprintf(format, args...)}
}

// tooLong is the code of a prompt that exceeds the context.
const tooLong = "context_length_exceeded"

// ofPrompt names the field that a prompt came in, where it is too long.
func ofPrompt(field string, err error) error {
	e := asAPIError(err)
	if e.Code == tooLong {
		e.Param = field
	}
	return e
}

// statusClosed is what logs of web servers call a request whose client has gone.
const statusClosed = 499

// asAPIError says an error of the node's in the API's terms.
func asAPIError(err error) *apiError {
	var api *apiError
	if errors.As(err, &api) {
		return api
	}
	e := &apiError{Status: http.StatusInternalServerError, Type: serverError, Message: err.Error()}
	var c *control.Error
	switch {
	case errors.Is(err, context.Canceled):
		e.Status = statusClosed
	case !errors.As(err, &c):
	case c.Kind == control.BadRequest:
		e.Status, e.Type = http.StatusBadRequest, invalidRequest
	case c.Kind == control.TooLong:
		e.Status, e.Type, e.Code = http.StatusRequestEntityTooLarge, invalidRequest, tooLong
	case c.Kind == control.UnknownModel:
		e.Status, e.Type, e.Code, e.Param = http.StatusNotFound, invalidRequest, "model_not_found", "model"
		if len(c.Near) > 0 && !strings.Contains(e.Message, c.Near[0]) {
			e.Message += "; near it are " + strings.Join(c.Near, ", ")
		}
	case c.Kind == control.Busy:
		e.Status, e.Type, e.Code, e.RetryAfter = http.StatusTooManyRequests, "rate_limit_error", "busy", max(c.RetryAfter, time.Second)
	case c.Kind == control.Loading:
		e.Status, e.Code, e.RetryAfter = http.StatusServiceUnavailable, "loading", 5*time.Second
	case c.Kind == control.NoRoute, c.Kind == control.PeerLost:
		e.Status, e.Code, e.RetryAfter = http.StatusServiceUnavailable, string(c.Kind), 5*time.Second
	}
	return e
}

// fail answers with an error.
func fail(w http.ResponseWriter, err error) {
	e := asAPIError(err)
	if e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds()))))
	}
	if e.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	writeJSON(w, e.Status, e)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the reader may be gone
}
