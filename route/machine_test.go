package route

import (
	"fmt"
	"strings"
	"testing"
)

func TestParseMachine(t *testing.T) {
	for _, c := range []struct {
		text string
		want Machine
		out  string
	}{
		{"add 32GB@60GB/s,1Gbit", Machine{32e9, 60e9, 125e6, 0}, "32GB@60GB/s,1Gbit"},
		{" add  1.5 TB@ 400 gb/s", Machine{1.5e12, 400e9, 0, 0}, "1.5TB@400GB/s"},
		{"add 16GiB@50GB/s,20TFLOPS,100Mbit/s", Machine{16 << 30, 50e9, 12.5e6, 20e12}, "17.18GB@50GB/s,100Mbit,20TFLOPS"},
	} {
		m, err := ParseMachine(c.text)
		if err != nil || m != c.want || m.String() != c.out {
			t.Errorf("%q is %+v, %q, %v; want %+v, %q", c.text, m, m, err, c.want, c.out)
		}
		if again, err := ParseMachine("add " + c.out); err != nil || again.ReadBytesPerSec != m.ReadBytesPerSec {
			t.Errorf("%q, written and read, is %+v, %v", c.text, again, err)
		}
	}
	for _, c := range []struct{ text, why string }{
		{"", "doesn't begin with add"},
		{"32GB@60GB/s", "doesn't begin with add"},
		{"add 32GB", "no @"},
		{"add 32@60GB/s", `"32" is no size`},
		{"add -3GB@60GB/s", `"-3GB" is no size`},
		{"add 1e300GB@60GB/s", "is no size"},
		{"add NaNGB@60GB/s", "is no size"},
		{"add 32GB@60GB", `"60GB" is no bandwidth`},
		{"add 32GB@60GB/s,", `"" is neither`},
		{"add 32GB@60GB/s,1Gbit,2Gbit", `"2Gbit" is neither`},
		{"add 32GB@60GB/s,0Gbit", `"0Gbit" is neither`},
	} {
		if m, err := ParseMachine(c.text); err == nil || !strings.Contains(err.Error(), c.why) || !strings.Contains(err.Error(), "add 32GB@60GB/s,1Gbit") {
			t.Errorf("%q is %+v, %v; want an error with %q and the grammar", c.text, m, err, c.why)
		}
	}
}

// TestMachineOffers has a machine hold what it has room for, and a plan with it be no worse.
func TestMachineOffers(t *testing.T) {
	m := Model{Layers: 6, HeadBytes: 5e8, EmbedBytes: 5e8, SeamBytes: 1e4, Cuts: []int{1, 2, 4, 5}}
	for range m.Layers {
		m.LayerWeightBytes = append(m.LayerWeightBytes, 1e9)
		m.LayerFlops = append(m.LayerFlops, 2e9)
		m.KVBytesPerToken = append(m.KVBytesPerToken, 1e4)
	}
	held := func(gb float64) (list []Range) {
		for _, p := range (Machine{MemoryBytes: int64(gb * 1e9), ReadBytesPerSec: 50e9}).Offers(m, 1000, "new") {
			if p.KVFreeBytes < int64(p.Holds.Len())*1e7 {
				t.Errorf("%g GB: %v with %d bytes for the cache", gb, p.Holds, p.KVFreeBytes)
			}
			if p.Embed != (p.Holds.First == 0) || p.Head != (p.Holds.Last == 6) {
				t.Errorf("%g GB: %+v", gb, p)
			}
			list = append(list, p.Holds)
		}
		return list
	}
	for _, c := range []struct {
		gb   float64
		want string
	}{
		{7.1, "[layers 0–5 (6)]"},
		{3.6, "[layers 0–1 (2) layers 1–3 (3) layers 2–4 (3) layers 4–5 (2)]"}, // no cut before 3
		{2.1, "[layer 0 (1) layer 1 (1) layers 2–3 (2) layer 4 (1) layer 5 (1)]"},
		{0.9, "[]"},
	} {
		if got := fmt.Sprint(held(c.gb)); got != c.want {
			t.Errorf("%g GB: %s, want %s", c.gb, got, c.want)
		}
	}
	peers := []Peer{{ID: "a", Holds: Range{0, 6}, Embed: true, Head: true, PrefillFlops: 1e11, DecodeBytesPerSec: 2e10, KVFreeBytes: 1 << 40, Up: 1e8, Down: 1e8}}
	req := Request{PromptTokens: 4000, NewTokens: 50}
	alone, err := Make(m, peers, nil, req)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range (Machine{MemoryBytes: 36e8, ReadBytesPerSec: 1e11, LinkBytesPerSec: 125e6, PrefillFlops: 1e12}).Offers(m, 4050, "new") {
		with, err := Make(m, append(peers, p), nil, req)
		if err != nil || with.Predicted.TotalSeconds > alone.Predicted.TotalSeconds || p.Holds.First == 0 && len(with.Stages) == 0 {
			t.Errorf("with %v: %v, %v, %v; alone %v", p.Holds, with, with.Predicted.TotalSeconds, err, alone.Predicted.TotalSeconds)
		}
	}
}
