package runtime

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

func TestMeasureMachine(t *testing.T) {
	m, err := measureMachine(context.Background(), 2, time.Second, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	if m.PrefillThreads < 1 || m.PrefillThreads > 2 || m.DecodeThreads < 1 || m.DecodeThreads > 2 || !(m.DecodeBytesPerSec > 1e5 && m.DecodeBytesPerSec < 1e13) || m.Variant == "" || m.MemoryFree <= 0 {
		t.Errorf("%+v", m)
	}
	for _, r := range m.Rates {
		if slices.ContainsFunc([]float64{r.Rows1, r.Rows32, r.Rows512}, func(f float64) bool { return !(f > 1e5 && f < 1e15) }) {
			t.Errorf("%+v", r)
		}
	}
	for _, typ := range machineTypes {
		if _, err := emptyMatrix(typ, 64, 256); err != nil {
			t.Error(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := MeasureMachine(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
