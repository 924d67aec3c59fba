package main

import (
	"encoding/csv"
	"fmt"
	"os"
	"strconv"
)

// print writes a report to stdout in the format that the flags ask for.
func (c *benchCmd) print(r *benchReport) error {
	switch {
	case c.JSON:
		return printJSON(r)
	case c.CSV:
		return r.csv()
	}
	fmt.Printf("%s, %s kernels, starling %s; weights: %s packed, %s from the file\n\n", r.CPU, r.Variant, r.Version, bytesText(r.Memory.Packed), bytesText(r.Memory.Mapped))
	if c.Limits {
		r.Limits.print()
	}
	fmt.Println("| model | size | threads | test | t/s | limit | of the limit |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
	for _, t := range r.Results {
		limit := "– | –"
		if c.Limits {
			limit = fmt.Sprintf("%.4g (%s) | %.0f %%", t.Limit, t.Bound, 100*t.Fraction)
		}
		fmt.Printf("| %s | %s | %d | %s | %.4g ± %.2g | %s |\n", printable(r.Model.title()), bytesText(r.Model.Bytes), r.Threads, t.Test, t.TPS, t.StdDev, limit)
	}
	return nil
}

// print writes the machine's speeds.
func (l *benchLimits) print() {
	fmt.Println("| threads | read GB/s | int8 GOPS | f32 GFLOPS |\n| ---: | ---: | ---: | ---: |")
	row := func(threads int, s benchSpeeds) {
		fmt.Printf("| %d | %.1f | %.0f | %.0f |\n", threads, s.Read/1e9, s.Int8/1e9, s.F32/1e9)
	}
	row(1, l.One)
	if l.Threads > 1 {
		row(l.Threads, l.benchSpeeds)
	}
	fmt.Println()
}

// title names the model for people.
func (m *benchModel) title() string {
	if m.Name != "" {
		return m.Name
	}
	return m.File
}

// csv writes a line of names, then one line per test.
func (r *benchReport) csv() error {
	w := csv.NewWriter(os.Stdout)
	number := func(x float64) string { return strconv.FormatFloat(x, 'g', 6, 64) }
	_ = w.Write([]string{"version", "cpu", "variant", "threads", "file", "bytes", "packed", "test", "prompt", "new", "depth", "batch", "tps", "stddev", "mean", "min", "max",
		"limit_tps", "limit_fraction", "bound", "read_bytes_per_s", "int8_ops_per_s", "f32_ops_per_s"})
	for _, t := range r.Results {
		_ = w.Write([]string{r.Version, r.CPU, r.Variant, strconv.Itoa(r.Threads), r.Model.File, strconv.FormatInt(r.Model.Bytes, 10), strconv.FormatInt(r.Memory.Packed, 10), t.Test,
			strconv.Itoa(t.Prompt), strconv.Itoa(t.New), strconv.Itoa(t.Depth), strconv.Itoa(t.Batch),
			number(t.TPS), number(t.StdDev), number(t.Mean), number(t.Min), number(t.Max), number(t.Limit), number(t.Fraction), t.Bound,
			number(r.Limits.Read), number(r.Limits.Int8), number(r.Limits.F32)})
	}
	w.Flush()
	return w.Error() // of any of the above
}
