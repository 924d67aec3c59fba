package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// writeNPY writes a float32 array as a NumPy file, format version 1.0: row-major,
// little endian. Parts follow each other, and shape says what they are together.
func writeNPY(w io.Writer, shape []int, parts ...[]float32) error {
	var dims []string
	for _, n := range shape {
		dims = append(dims, strconv.Itoa(n))
	}
	if len(dims) == 1 {
		dims = append(dims, "") // a tuple of one, as Python writes it
	}
	header := fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%s), }", strings.TrimSuffix(strings.Join(dims, ", "), " "))
	const before = 6 + 2 + 2 // magic, version, the header's length
	header += strings.Repeat(" ", 63-(before+len(header))%64) + "\n"
	b := bufio.NewWriterSize(w, 1<<20)
	b.WriteString("\x93NUMPY\x01\x00")
	b.Write(binary.LittleEndian.AppendUint16(nil, uint16(len(header))))
	b.WriteString(header)
	var four [4]byte
	for _, part := range parts {
		for _, x := range part {
			binary.LittleEndian.PutUint32(four[:], math.Float32bits(x))
			b.Write(four[:])
		}
	}
	return b.Flush() // and the first error of all writes
}
