package control

import "time"

// Measured is what a node has measured of its machine.
type Measured struct {
	At       time.Time `json:"at"`
	Program  string    `json:"program"` // version of starling that measured
	CPUs     int       `json:"cpus"`
	Variant  string    `json:"variant"` // of the kernels
	Duration float64   `json:"measured_for_seconds"`

	PrefillThreads    int        `json:"prefill_threads"` // that do best
	DecodeThreads     int        `json:"decode_threads"`
	DecodeBytesPerSec float64    `json:"decode_bytes_per_sec"` // of weights, with a single row
	Rates             []TypeRate `json:"rates"`                // by weight type
	MemoryFree        int64      `json:"memory_free_bytes"`
	MemoryTotal       int64      `json:"memory_total_bytes"`          // 0: not known
	DiskSequential    float64    `json:"disk_sequential_bytes_per_s"` // reads of the data folder's disk; 0: not known
	DiskRandom        float64    `json:"disk_random_bytes_per_s"`     // of pages anywhere, one at a time
}

// TypeRate is how fast weights of a type are multiplied by so many rows, in FLOP/s.
type TypeRate struct {
	Type    string  `json:"type"`
	Rows1   float64 `json:"rows_1"`
	Rows32  float64 `json:"rows_32"`
	Rows512 float64 `json:"rows_512"`
}
