package template

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// oneLine makes text from a template fit for an error message: one line,
// printable, and not too long.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, cutRunes(s, 401))
	if short := cutRunes(s, 400); short != s {
		return short + "…"
	}
	return s
}

// SyntaxError says why a source is not a template. [Parse] returns it.
type SyntaxError struct {
	Line int // from 1
	Msg  string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("chat template, line %d: %s", e.Line, oneLine(e.Msg))
}

// RaisedError is the template's own refusal: it called raise_exception. The
// message is for the user ("System role not supported"); Msg is what the
// template gave, Error has it on one line.
type RaisedError struct{ Msg string }

func (e *RaisedError) Error() string {
	return "the chat template refuses this conversation: " + oneLine(e.Msg)
}

// LimitError says that a template used up its budget.
type LimitError struct {
	What  string // "steps", "memory", "depth", "output" or "source"
	Limit int
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("the chat template exceeds the limit of %d %s", e.Limit, limitUnits[e.What])
}

var limitUnits = map[string]string{
	"steps": "steps", "memory": "bytes of working memory", "depth": "nested calls or values",
	"output": "bytes of output", "source": "bytes of source",
}

// RuntimeError is a mistake of the template met while rendering, such as a
// value of the wrong type.
type RuntimeError struct {
	Line int // of the statement, from 1
	Err  error
}

func (e *RuntimeError) Error() string {
	return fmt.Sprintf("chat template, line %d: %s", e.Line, oneLine(e.Err.Error()))
}

func (e *RuntimeError) Unwrap() error { return e.Err }

// atLine adds the line to errors that do not have one and are not about the
// template as a whole.
func atLine(line int, err error) error {
	var re *RuntimeError
	var le *LimitError
	var xe *RaisedError
	if err == nil || errors.As(err, &re) || errors.As(err, &le) || errors.As(err, &xe) {
		return err
	}
	return &RuntimeError{Line: line, Err: err}
}
