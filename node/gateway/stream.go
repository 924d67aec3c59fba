package gateway

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"
)

// eventStream sends server-sent events. Its methods may be called from several goroutines.
type eventStream struct {
	w     http.ResponseWriter
	flush *http.ResponseController
	begun func(http.Header) // called once, before the first event, to add to the header

	mu   sync.Mutex
	open bool  // the header is out
	err  error // of the first write that failed
}

// slowReader is how long the client may take to make room for an event.
const slowReader = time.Minute

func newEventStream(w http.ResponseWriter) *eventStream {
	return &eventStream{w: w, flush: http.NewResponseController(w)}
}

// beginLocked sends the header, unless it has gone out.
func (s *eventStream) beginLocked() {
	if s.open {
		return
	}
	s.open = true
	h := s.w.Header()
	if s.begun != nil {
		s.begun(h)
	}
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // for proxies that would gather events
	s.w.WriteHeader(http.StatusOK)
}

// send sends v as JSON. An error says that the client is gone.
func (s *eventStream) send(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return s.write(b)
}

func (s *eventStream) write(b []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	s.beginLocked()
	_ = s.flush.SetWriteDeadline(time.Now().Add(slowReader)) // a writer that can't is a test's
	line := make([]byte, 0, len(b)+8)
	line = append(append(append(line, "data: "...), b...), "\n\n"...)
	if _, s.err = s.w.Write(line); s.err == nil {
		s.err = s.flush.Flush()
	}
	return s.err
}

// end sends the last event.
func (s *eventStream) end() { _ = s.write([]byte("[DONE]")) } // the client may be gone

// fail says what went wrong: as a status where nothing has been said yet.
func (s *eventStream) fail(err error) {
	s.mu.Lock()
	open := s.open
	s.mu.Unlock()
	if !open {
		fail(s.w, err)
		return
	}
	_ = s.send(asAPIError(err)) // as above
}
