package main

import (
	"bytes"
	"encoding/hex"
	"testing"
)

// What numpy.save writes of the same arrays.
func TestNPY(t *testing.T) {
	for _, c := range []struct {
		shape  []int
		header string
	}{
		{[]int{3}, "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }"},
		{[]int{2, 3, 576}, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, 576), }"},
	} {
		var b bytes.Buffer
		if err := writeNPY(&b, c.shape, []float32{1, -2}, []float32{0.5}); err != nil {
			t.Fatal(err)
		}
		got := b.Bytes()
		head := len(got) - 12
		if head%64 != 0 || got[head-1] != '\n' || int(got[8])+int(got[9])<<8 != head-10 {
			t.Errorf("%v: the header ends at byte %d: %q", c.shape, head, got[:head])
		}
		if string(got[:8]) != "\x93NUMPY\x01\x00" || string(bytes.TrimRight(got[10:head], " \n")) != c.header {
			t.Errorf("%v: header %q", c.shape, got[:head])
		}
		if data := hex.EncodeToString(got[head:]); data != "0000803f000000c00000003f" {
			t.Errorf("%v: data %s", c.shape, data)
		}
	}
}
