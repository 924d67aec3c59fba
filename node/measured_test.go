package node

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	"github.com/starling-swarm/starling/node/control"
)

// The figures of the data folder are believed as long as they are this machine's and make sense.
func TestMeasuredFile(t *testing.T) {
	dir := t.TempDir()
	if m, err := readMeasured(dir, "1", "generic"); m != nil || err != nil {
		t.Errorf("nothing there: %+v, %v", m, err)
	}
	good := control.Measured{At: time.Unix(1e9, 0).UTC(), Program: "1", CPUs: goruntime.NumCPU(), Variant: "generic", PrefillThreads: 1, DecodeThreads: 1, DecodeBytesPerSec: 1e10,
		Rates: []control.TypeRate{{Type: "Q4_K", Rows1: 1e9, Rows32: 2e9, Rows512: 3e9}}, DiskSequential: 1e9, DiskRandom: 1e7}
	if err := writeMeasured(dir, &good); err != nil {
		t.Fatal(err)
	}
	if m, err := readMeasured(dir, "1", "generic"); err != nil || !reflect.DeepEqual(m, &good) {
		t.Errorf("%+v, %v", m, err)
	}
	for _, other := range [][2]string{{"2", "generic"}, {"1", "avx2"}} {
		if m, err := readMeasured(dir, other[0], other[1]); m != nil || err != nil {
			t.Errorf("%v: %+v, %v", other, m, err)
		}
	}
	for name, change := range map[string]func(*control.Measured){
		"rate":    func(m *control.Measured) { m.Rates[0].Rows32 = -1 },
		"threads": func(m *control.Measured) { m.DecodeThreads = goruntime.NumCPU() + 1 },
	} {
		bad := good
		bad.Rates = []control.TypeRate{good.Rates[0]}
		change(&bad)
		if err := writeMeasured(dir, &bad); err != nil {
			t.Fatal(err)
		}
		if m, err := readMeasured(dir, "1", "generic"); m != nil || err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("impossible %s: %+v, %v", name, m, err)
		}
	}
	for name, text := range map[string]string{"no JSON": "{", "too long": strings.Repeat(" ", maxMeasured) + "{}"} {
		if err := os.WriteFile(filepath.Join(dir, measuredFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if m, err := readMeasured(dir, "1", "generic"); m != nil || err == nil {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
}

func TestReadRates(t *testing.T) {
	dir := t.TempDir()
	sequential, random, err := readRates(context.Background(), dir)
	if err != nil || sequential < 0 || random < 0 {
		t.Errorf("%g, %g, %v", sequential, random, err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}
