package route

import "testing"

// A label may be dropped only if another is no worse in every respect that a completion can feel.
func TestBeats(t *testing.T) {
	base := label{cost: 2, period: 2, tail: 2, used: 0b0011}
	set := setting{periods: 10}
	free := &frontier{in: &instance{}, set: set}
	include := &frontier{in: &instance{}, set: set, must: 0b0010}
	assign := &frontier{in: &instance{req: Request{Assign: []string{"", ""}}}, set: set}
	for _, tc := range []struct {
		name string
		f    *frontier
		b    label
		want bool
	}{
		{"equal", free, base, true},
		{"dearer", free, label{cost: 3, period: 2, tail: 2, used: 0b0011}, true},
		{"cheaper", free, label{cost: 1, period: 2, tail: 2, used: 0b0011}, false},
		{"period shorter by less than the cost", free, label{cost: 3, period: 1.95, tail: 2, used: 0b0011}, true},
		{"period shorter by more than the cost", free, label{cost: 3, period: 1.85, tail: 2, used: 0b0011}, false},
		{"period shorter but what follows is long", free, label{cost: 3, period: 1, floor: 1.95, tail: 2, used: 0b0011}, true},
		{"tail shorter by less than the cost", free, label{cost: 3, period: 3, tail: 1.1, used: 0b0011}, true},
		{"tail shorter by more than the cost", free, label{cost: 3, period: 3, tail: 0.9, used: 0b0011}, false},
		{"both shorter, each by less", free, label{cost: 3, period: 1.95, tail: 1.4, used: 0b0011}, false},
		{"more peers used", free, label{cost: 2, period: 2, tail: 2, used: 0b0111}, true},
		{"fewer peers used", free, label{cost: 3, period: 3, tail: 3, used: 0b0001}, false},
		{"other peers used", free, label{cost: 3, period: 3, tail: 3, used: 0b1100}, false},
		{"wanted peer in both", include, label{cost: 3, period: 3, tail: 3, used: 0b0011}, true},
		{"number of stages counts", assign, label{cost: 3, period: 3, tail: 3, used: 0b0111}, false},
		{"same stages", assign, label{cost: 3, period: 3, tail: 3, used: 0b0011}, true},
	} {
		tc.b.floor = max(tc.b.floor, tc.b.period)
		if got := tc.f.beats(&base, &tc.b); got != tc.want {
			t.Errorf("%s: beats = %v", tc.name, got)
		}
	}
	lacking := label{cost: 1, period: 1, tail: 1, used: 0b0001}
	if include.beats(&lacking, &label{cost: 2, period: 2, tail: 2, used: 0b0011}) {
		t.Error("a label without the wanted peer beats one with it")
	}
}
