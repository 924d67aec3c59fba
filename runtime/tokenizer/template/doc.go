// Package template is an interpreter for chat templates: the part of Jinja that
// models ship in tokenizer.chat_template, with the settings that Hugging Face
// transformers renders them with (trim_blocks, lstrip_blocks, loop controls,
// tojson, raise_exception, strftime_now, no mutation of lists and dicts).
//
// A template comes with a model, from a stranger, so it is run as an untrusted
// program: it can reach nothing but the values passed to it and the time, and
// it has a budget of steps, memory, nesting and output ([Limits]). One that
// loops for ever, recurses, or builds gigabytes ends in a [LimitError].
//
// # From source to text
//
//	source ── lex.go ──▶ tokens ── parse*.go ──▶ tree ── exec.go, eval.go ──▶ text
//
// Values follow Python, because templates rely on it: value.go has the types,
// convert.go how Go values become them, ops.go the operators, methods*.go the
// methods of strings and dicts, filters*.go and tests.go Jinja's own.
// Unlike Python's, integers have 64 bits; a result that does not fit is an error.
package template
