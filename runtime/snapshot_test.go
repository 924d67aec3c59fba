package runtime_test

import (
	"context"
	"slices"
	"testing"

	"github.com/starling-swarm/starling/kernels"
	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/runtimetest"
)

// TestSnapshotsOf asks for memory's bounds, whatever the model.
func TestSnapshotsOf(t *testing.T) {
	for _, c := range []struct {
		rows, tails int64
		capacity    int
		want        runtime.Snapshots
	}{
		{20 << 10, 0, 8192, runtime.Snapshots{}}, // nothing to keep
		{20 << 10, 63 << 20, 255, runtime.Snapshots{Every: 256}},
		{20 << 10, 63 << 20, 1000, runtime.Snapshots{Every: 256, Most: 2}},
		{20 << 10, 63 << 20, 8192, runtime.Snapshots{Every: 1024, Most: 4}},
		{20 << 10, 63 << 20, 16384, runtime.Snapshots{Every: 1024, Most: 5}},
		{20 << 10, 63 << 20, 262144, runtime.Snapshots{Every: 2048, Most: 8}},
		{0, 63 << 20, 262144, runtime.Snapshots{Every: 32768, Most: 4}},
		{1 << 40, 1, 1 << 40, runtime.Snapshots{Every: 1 << 33, Most: 8}},
	} {
		if got := runtime.SnapshotsOf(c.rows, c.tails, c.capacity); got != c.want {
			t.Errorf("%d bytes a position, tails of %d, %d positions: %+v, want %+v", c.rows, c.tails, c.capacity, got, c.want)
		}
	}
}

// snapshotsAt lists the positions up to n to which a sequence can go back.
func snapshotsAt(s runtime.Sequence, n int) (list []int) {
	for at := n; at > 0; at-- {
		if at = s.Reach(at); at > 0 {
			list = append(list, at)
		}
	}
	slices.Reverse(list)
	return list
}

// TestSnapshotsGoBack computes in steps of several sizes, goes back to everything that is kept and to positions between, in the sequence itself
// and in forks, and goes on from there to the same states.
func TestSnapshotsGoBack(t *testing.T) {
	if raceEnabled {
		t.Skip("numbers only: not with -race")
	}
	for _, arch := range []string{"qwen35", "qwen35moe"} {
		m := recurrent(t, arch)
		const n = 1300
		tokens := someTokens(n)
		read := func(s runtime.Sequence, ends ...int) {
			t.Helper()
			for _, end := range ends {
				at := s.Len(0)
				run(t, m, &runtime.Step{Seq: s, Layers: m.Layers(), Start: at, N: end - at, Tokens: tokens[at:end]})
			}
		}
		whole := sequenceOf(t, m, n)
		read(whole, n)
		want := states(m, whole)
		if got, kept := snapshotsAt(whole, n), []int{512, 1024, 1280, n}; !slices.Equal(got, kept) {
			t.Fatalf("%s: snapshots at %v, want %v", arch, got, kept)
		}

		// However steps are cut, the same positions are kept, beside where the last one began and ended.
		s := sequenceOf(t, m, n)
		for _, c := range []struct {
			end  int
			kept []int
		}{
			{200, []int{200}}, {255, []int{200, 255}}, {260, []int{255, 256, 260}}, {900, []int{256 * 2, 256 * 3, 900}}, {1024, []int{512, 768, 900, 1024}}, {1030, []int{512, 768, 1024, 1030}},
		} {
			read(s, c.end)
			if got := snapshotsAt(s, c.end); !slices.Equal(got[max(len(got)-len(c.kept), 0):], c.kept) || len(got) > len(c.kept)+1 {
				t.Errorf("%s: behind %d positions snapshots at %v, want %v", arch, c.end, got, c.kept)
			}
		}
		before := states(m, s)
		late := &lateCancel{Context: context.Background(), left: 3}
		if err := m.Run(late, []*runtime.Step{{Seq: s, Layers: m.Layers(), Start: 1030, N: 270, Tokens: tokens[1030:]}}); err == nil {
			t.Fatal("a Run was to be cancelled")
		}
		if got := states(m, s); !slices.Equal(got, before) || s.Reach(1020) != 768 || s.Reach(600) != 512 {
			t.Errorf("%s: a failed Run changed what is kept: %v", arch, snapshotsAt(s, 1030))
		}
		for _, c := range [][2]int{{1029, 1024}, {1023, 768}, {700, 512}, {511, 0}} {
			fork, err := s.Fork(c[0], n)
			if err != nil {
				t.Fatal(err)
			}
			if got := fork.Len(0); got != c[1] || fork.Len(1) != got {
				t.Fatalf("%s: a fork at %d has %d positions, want %d", arch, c[0], got, c[1])
			}
			if got := s.Truncate(c[0]); got != c[1] || s.Len(0) != got || s.Len(1) != got {
				t.Fatalf("%s: Truncate(%d) went to %d, want %d", arch, c[0], got, c[1])
			}
			read(fork, min(c[1]+70, n), n)
			if !slices.Equal(states(m, fork), want) {
				t.Errorf("%s: a fork at %d goes on to other states", arch, c[1])
			}
			fork.Close()
			if other := snapshotsAt(s, c[1]); c[1] > 0 && !slices.Contains(other, c[1]) {
				t.Errorf("%s: after Truncate(%d) %v are kept", arch, c[0], other)
			}
		}
		read(s, 300, n)
		if !slices.Equal(states(m, s), want) {
			t.Errorf("%s: after all of it, other states", arch)
		}
	}
}

// TestSnapshotsTravel hands over a sequence as it was at a snapshot; who gets it in pieces keeps snapshots as well.
func TestSnapshotsTravel(t *testing.T) {
	if raceEnabled {
		t.Skip("numbers only: not with -race")
	}
	m := recurrent(t, "qwen35moe")
	tokens := someTokens(600)
	from, to := sequenceOf(t, m, 600), sequenceOf(t, m, 600)
	run(t, m, &runtime.Step{Seq: from, Layers: m.Layers(), N: 600, Tokens: tokens})
	hand := func(first, last int) {
		t.Helper()
		for l := range m.Config().Layers {
			data, err := from.ExportKV(nil, l, first, last)
			if err == nil {
				err = to.ImportKV(l, first, last-first, data)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	hand(0, 256)
	hand(256, 512)
	hand(512, 600)
	if got := snapshotsAt(to, 600); !slices.Equal(got, []int{256, 512, 600}) {
		t.Errorf("snapshots at %v", got)
	}
	if got := to.Truncate(599); got != 512 {
		t.Fatalf("Truncate(599) went to %d", got)
	}
	run(t, m, &runtime.Step{Seq: to, Layers: m.Layers(), Start: 512, N: 88, Tokens: tokens[512:]})
	if !slices.Equal(states(m, to), states(m, from)) {
		t.Error("other states")
	}
}

// TestSnapshotsReserved checks that admission counts them.
func TestSnapshotsReserved(t *testing.T) {
	m := recurrent(t, "qwen35moe")
	c := m.Config()
	free := m.FreeKVBytes()
	d, err := runtime.Describe(tiny(t, runtimetest.TinyModel{Arch: "qwen35moe", Seed: 3, Type: kernels.Q8_0}))
	if err != nil {
		t.Fatal(err)
	}
	s := sequenceOf(t, m, 600)
	want := int64(768*c.KVRowBytes(1, runtime.KVF16)) + 2*int64(c.Snapshots(runtime.KVF16, 600).Tails()*s.TailBytes(0))
	if got := free - m.FreeKVBytes(); got != want || c.Snapshots(runtime.KVF16, 600).Tails() != 4 {
		t.Errorf("%d bytes reserved, want %d", got, want)
	}
	if got := d.SessionBytes(768, runtime.KVF16); got != want {
		t.Errorf("described are %d bytes for a session, reserved %d", got, want)
	}
	fork, err := s.Fork(0, 300)
	if err != nil {
		t.Fatal(err)
	}
	fork.Close()
	s.Close()
	if got := m.FreeKVBytes(); got != free {
		t.Errorf("%d bytes free, %d before", got, free)
	}
}
