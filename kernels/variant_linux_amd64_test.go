//go:build !purego

package kernels

import (
	"os"
	"strings"
	"testing"
)

// TestProcessorVariants asks the system, not the code under test, what this processor has: each variant that it can run
// must be there, give the specified bits, and the best of them must have been selected. What the processor lacks is
// reported as not run.
func TestProcessorVariants(t *testing.T) {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		t.Skip("not run: ", err)
	}
	_, after, _ := strings.Cut(string(info), "\nflags")
	line, _, _ := strings.Cut(after, "\n")
	flags := make(map[string]bool)
	for _, f := range strings.Fields(line) {
		flags[f] = true
	}
	best := Generic
	for _, c := range []struct {
		variant Variant
		needs   string
	}{
		{AVX2, "avx2 fma f16c"},
		{AVXVNNI, "avx2 fma f16c avx_vnni"},
		{AVX512, "avx512f avx512bw avx512dq avx512vl avx512_vnni"},
	} {
		t.Run(c.variant.String(), func(t *testing.T) {
			for _, need := range strings.Fields(c.needs) {
				if !flags[need] {
					t.Skipf("not run: this processor does not have %s", need)
				}
			}
			best = c.variant
			before := Active()
			if err := Use(c.variant); err != nil {
				t.Fatalf("the processor has %s: %v", c.needs, err)
			}
			defer Use(before)
			if _, err := SelfTest(); err != nil {
				t.Error(err)
			}
		})
	}
	if os.Getenv(variantEnv) == "" && Active() != best {
		t.Errorf("%v kernels were selected, the processor has %v", Active(), best)
	}
}
