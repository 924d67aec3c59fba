package tokenizer

import (
	"slices"
	"testing"
)

func TestStream(t *testing.T) {
	v := toy("<s>")
	tok := newToy(t, v)
	for _, c := range []struct {
		ids   []int32
		parts []string // one per id, then what Flush gives
	}{
		{[]int32{259, 260}, []string{"hello", " hello", ""}},
		{[]int32{0xF0, 0x9F, 0x99, 0x82, '!'}, []string{"", "", "", "🙂", "!", ""}},
		{[]int32{0xE4, 0xBD}, []string{"", "", "\uFFFD\uFFFD"}},
		{[]int32{0xE4, 'a'}, []string{"", "\uFFFDa", ""}},
		{[]int32{0xFF, 0x80}, []string{"\uFFFD", "\uFFFD", ""}},
		{[]int32{0xE4, 261, 0xBD, 0xA0}, []string{"", "", "", "你", ""}},
		{[]int32{0xED, 0xA0, 0x80}, []string{"", "\uFFFD\uFFFD", "\uFFFD", ""}},
		{[]int32{-1, 70000}, []string{"", "", ""}},
	} {
		s := tok.NewStream()
		for range 2 { // a flushed stream can be used again
			var got []string
			for _, id := range c.ids {
				got = append(got, s.Push(id))
			}
			got = append(got, s.Flush())
			if !slices.Equal(got, c.parts) {
				t.Errorf("stream of %x: %q, want %q", c.ids, got, c.parts)
			}
		}
	}
}
