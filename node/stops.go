package node

import (
	"errors"
	"fmt"
	"strings"
)

// Limits of the texts that end an answer.
const (
	maxStops     = 16
	maxStopBytes = 1024
)

// Stops finds the texts that end an answer in what comes of it, piece by piece, and keeps back what may be the beginning of one.
type Stops struct {
	Found string // the text that came; "" so far

	texts []string
	held  string
}

// NewStops returns a finder of texts: at most 16, of 1 to 1024 bytes each.
func NewStops(texts []string) (*Stops, error) {
	if len(texts) > maxStops {
		return nil, fmt.Errorf("%d texts that end the answer: at most %d", len(texts), maxStops)
	}
	for _, t := range texts {
		switch {
		case t == "":
			return nil, errors.New("a text that ends the answer is empty")
		case len(t) > maxStopBytes:
			return nil, fmt.Errorf("a text that ends the answer has %d bytes: at most %d", len(t), maxStopBytes)
		}
	}
	return &Stops{texts: texts}, nil
}

// Push takes the answer's next piece and returns what of it, and of what was held, is no part of such a text, and comes before the first.
// After that it returns nothing.
func (s *Stops) Push(piece string) string {
	if s.Found != "" {
		return ""
	}
	s.held += piece
	end := -1
	for _, t := range s.texts {
		if i := strings.Index(s.held, t); i >= 0 && (end < 0 || i < end) {
			end, s.Found = i, t
		}
	}
	if end < 0 {
		end = len(s.held) - s.begun()
	}
	told := s.held[:end]
	s.held = s.held[end:]
	return told
}

// Flush returns what is held of an answer that has ended.
func (s *Stops) Flush() string {
	if s.Found != "" {
		return ""
	}
	told := s.held
	s.held = ""
	return told
}

// begun returns how many bytes at the end of what is held may be the beginning of a text.
func (s *Stops) begun() (n int) {
	for _, t := range s.texts {
		for k := min(len(t)-1, len(s.held)); k > n; k-- {
			if strings.HasSuffix(s.held, t[:k]) {
				n = k
			}
		}
	}
	return n
}
