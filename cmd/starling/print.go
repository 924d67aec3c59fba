package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"
)

// printJSON writes v, indented, to stdout.
func printJSON(v any) error {
	e := json.NewEncoder(os.Stdout)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// printLine writes v on one line to stdout.
func printLine(v any) error {
	e := json.NewEncoder(os.Stdout)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// table aligns columns that are separated by tabs.
func table(w io.Writer, rows func(w io.Writer)) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	rows(t)
	return t.Flush()
}

// durationText writes a time in about three digits.
func durationText(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%.3g µs", float64(d)/1e3)
	case d < time.Second:
		return fmt.Sprintf("%.3g ms", float64(d)/1e6)
	case d < 100*time.Second:
		return fmt.Sprintf("%.3g s", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// shortID shortens a model ID or a hash for people.
func shortID(id string) string { return id[:min(len(id), 12)] }

// shortPeer shortens a peer ID to its end, where peer IDs differ.
func shortPeer(id string) string {
	if len(id) <= 10 {
		return printable(id)
	}
	return "…" + printable(id[len(id)-8:])
}
