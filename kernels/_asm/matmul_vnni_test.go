package main

import (
	"strings"
	"testing"
)

// TestVPDPBUSD compares encodings with what GNU as 2.40 makes of "{vex} vpdpbusd %ymm…", every register field both below
// and above 8.
func TestVPDPBUSD(t *testing.T) {
	for _, c := range []struct {
		acts, codes, sum int
		want             string
	}{
		{10, 8, 0, "c4c23d50c2"},
		{10, 9, 7, "c4c23550fa"},
		{2, 15, 13, "c4620550ea"},
		{15, 0, 8, "c4427d50c7"},
	} {
		f := newFile("test", "amd64")
		f.vpdpbusd(c.acts, c.codes, c.sum)
		code, _, _ := strings.Cut(f.body.String(), " //")
		got := strings.NewReplacer("\tBYTE $0x", "", "; BYTE $0x", "").Replace(code)
		if got != c.want {
			t.Errorf("acts %d, codes %d, sum %d: %s, want %s", c.acts, c.codes, c.sum, got, c.want)
		}
	}
}
