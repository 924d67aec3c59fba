package runtimetest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-swarm/starling/runtime"
	"github.com/starling-swarm/starling/runtime/runtimetest"
)

func TestFake(t *testing.T) {
	for _, kv := range []runtime.KVType{runtime.KVF16, runtime.KVF32} {
		t.Run(kv.String(), func(t *testing.T) {
			runtimetest.TestExecutor(t, func(r runtime.Range) runtime.Executor {
				e, err := new(runtimetest.Fake).Open(runtime.Options{Path: "toy", Layers: r, KV: kv, MaxKVBytes: 10 << 20})
				if err != nil {
					t.Fatal(err)
				}
				return e
			})
		})
	}
}

// runOne runs a prompt of n tokens.
func runOne(t *testing.T, f *runtimetest.Fake, ctx context.Context, n int) (*runtime.Step, error) {
	e, err := f.Open(runtime.Options{Path: "toy"})
	if err != nil {
		t.Fatal(err)
	}
	seq, err := e.NewSequence(n, e.Layers())
	if err != nil {
		t.Fatal(err)
	}
	step := &runtime.Step{Seq: seq, Layers: e.Layers(), N: n, Tokens: make([]int32, n), LogitRows: []int{n - 1}}
	return step, e.Run(ctx, []*runtime.Step{step})
}

func TestFakeFailure(t *testing.T) {
	boom := errors.New("boom")
	f := &runtimetest.Fake{Fail: func(layer, pos int, _ []float32) error {
		if layer == 2 && pos == 5 {
			return boom
		}
		return nil
	}}
	if _, err := runOne(t, f, context.Background(), 5); err != nil {
		t.Errorf("before the failing position: %v", err)
	}
	step, err := runOne(t, f, context.Background(), 6)
	if !errors.Is(err, boom) || step.Seq.Len(0) != 0 {
		t.Errorf("error %v, %d rows left", err, step.Seq.Len(0))
	}
}

func TestFakeDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &runtimetest.Fake{Delay: time.Second}
		start := time.Now()
		if _, err := runOne(t, f, context.Background(), 10); err != nil {
			t.Fatal(err)
		}
		if got := time.Since(start); got != 60*time.Second {
			t.Errorf("10 rows in 6 layers took %v, want 60s", got)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
		defer cancel()
		if _, err := runOne(t, f, ctx, 10); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want the deadline", err)
		}
	})
}

func TestFakeStop(t *testing.T) {
	eos := runtimetest.FakeTokenizer().EOS()
	for _, stop := range []int{0, 8, 9} {
		step, err := runOne(t, &runtimetest.Fake{StopAt: stop}, context.Background(), 9) // logits at position 8
		if err != nil {
			t.Fatal(err)
		}
		id, err := runtime.Sample(step.Logits[0], nil, 9, runtime.Sampling{})
		if err != nil {
			t.Fatal(err)
		}
		if want := stop == 8; (id == eos) != want {
			t.Errorf("StopAt %d: token %d", stop, id)
		}
	}
}

func TestFakeTokenizer(t *testing.T) {
	tok := runtimetest.FakeTokenizer()
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
		if p := tok.Piece(int32(i)); len(p) != 1 || p[0] != byte(i) {
			t.Errorf("token %d is %q", i, p)
		}
	}
	if got := tok.Decode([]int32{'h', 'i', 256}, false); got != "hi" {
		t.Errorf("decoded %q", got)
	}
	if !tok.IsEOG(256) || !tok.IsEOG(258) || tok.IsEOG(257) {
		t.Error("the wrong tokens end a generation")
	}
}
