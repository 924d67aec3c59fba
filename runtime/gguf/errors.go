package gguf

import (
	"fmt"
	"strconv"
	"unicode"
	"unicode/utf8"
)

// Error says where and why a file was refused. Its text is one line whatever the file holds.
type Error struct {
	File    string // the name given to Read, or the path
	Offset  int64  // byte offset of the field, from the start of the file
	Field   string // what was being read: "n_kv", `tensor "blk.0.attn_q.weight" dims[1]`
	Problem string // what is wrong and, where there is one, the remedy
	Err     error  // the I/O error behind it, if there is one
}

// Error returns "gguf: FILE: FIELD at byte OFFSET: PROBLEM".
func (e *Error) Error() string {
	return fmt.Sprintf("gguf: %s: %s at byte %d: %s", oneLine(e.File), e.Field, e.Offset, e.Problem)
}

// Unwrap returns the I/O error behind e, or nil.
func (e *Error) Unwrap() error { return e.Err }

// quote quotes s for an error or a listing, cut to 64 bytes.
func quote(s string) string {
	const most = 64
	if len(s) <= most {
		return strconv.Quote(s)
	}
	cut := most
	for cut > most-utf8.UTFMax && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return strconv.Quote(s[:cut]) + "…"
}

// oneLine returns name as it is when it prints on one line, else quoted.
func oneLine(name string) string {
	for _, r := range name {
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			return strconv.Quote(name)
		}
	}
	return name
}
