package kernels

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// Variant is one implementation of the kernels. All give the same bits; they differ in what processor they need.
type Variant uint8

// The variants. Generic is the specification, in Go; it runs everywhere.
const (
	Generic Variant = iota
	AVX2            // amd64: AVX2, FMA, F16C
	AVXVNNI         // amd64: and VPDPBUSD in 256 bits
	AVX512          // amd64: AVX-512 F, BW, DQ, VL and VNNI
	NEON            // arm64: what ARMv8.0 has
	DotProd         // arm64: and SDOT
	I8MM            // arm64: and SMMLA
	variants
)

// String returns the name that STARLING_KERNELS takes.
func (v Variant) String() string {
	if v < variants {
		return variantNames[v]
	}
	return fmt.Sprintf("variant %d", uint8(v))
}

var variantNames = [variants]string{Generic: "generic", AVX2: "avx2", AVXVNNI: "avxvnni", AVX512: "avx512", NEON: "neon", DotProd: "dotprod", I8MM: "i8mm"}

// implementation is what a variant does faster than the specification; a nil function means that the Go code does it.
type implementation struct {
	variant Variant
	// unproven marks code that no test of ours has run on a processor, only on a model of one: it must pass the self-test
	// before it is chosen or the environment gets it, which takes some tens of milliseconds at start. If it fails, it is as
	// if this build didn't have it.
	unproven bool
	group    [len(geometries)]func(*groupArgs) // quantised matrix product, by weight type
	pairs    bool                              // group takes two groups of rows at once
	pack     func(*packArgs)                   // 16 native rows to the packed layout
	store    func(*storeArgs)                  // sums of whole groups to the outputs

	read, peakInt8, peakF32 func(*limitArgs) // the limits of the machine, see ReadLoop and PeakInt8

	rowKernels  // elementwise work
	attnKernels // attention
}

// implementations are those this build has, by Variant; entries without one are nil.
var implementations [variants]*implementation

// active is the implementation in use. It changes only in [Use], and in init.
var active = &implementation{variant: Generic}

// variantEnv overrides the choice of a variant at start; for tests and for finding faults.
const variantEnv = "STARLING_KERNELS"

func init() {
	implementations[Generic] = active
	addImplementations()
	if name := os.Getenv(variantEnv); name != "" {
		if envErr = obey(name); envErr == nil {
			return
		}
	}
	choose()
}

// obey makes the variant of a name active, if it can be trusted.
func obey(name string) error {
	v, err := parseVariant(name)
	if err == nil {
		err = Use(v)
	}
	if err == nil {
		err = prove()
	}
	return err
}

// prove runs the self-test if the variant in use needs it.
func prove() error {
	if !active.unproven {
		return nil
	}
	_, err := SelfTest()
	return err
}

// choose makes the fastest variant active that can be trusted.
func choose() {
	list := Variants()
	for i := len(list) - 1; i >= 0; i-- {
		active = implementations[list[i]]
		err := prove()
		if err == nil {
			return
		}
		implementations[list[i]] = nil
		distrusted = errors.Join(distrusted, fmt.Errorf("%v kernels are not used: %w", list[i], err))
	}
}

// distrusted is why choose left variants out.
var distrusted error

// Distrusted returns why variants that this processor should run are left out: each failed the self-test. It returns nil
// where none did.
func Distrusted() error { return distrusted }

// envErr is what was wrong with the environment's wish.
var envErr error

// VariantError returns the error of a STARLING_KERNELS that could not be followed, or nil.
func VariantError() error {
	if envErr != nil {
		return fmt.Errorf("%s: %w", variantEnv, envErr)
	}
	return nil
}

// parseVariant returns the variant of a name.
func parseVariant(name string) (Variant, error) {
	for v, n := range variantNames {
		if n == name {
			return Variant(v), nil
		}
	}
	return 0, fmt.Errorf("no kernels are called %q (there are: %s)", name, strings.Join(variantNames[:], ", "))
}

// Variants returns the variants that this build has and this processor can run, slowest first.
func Variants() []Variant {
	var list []Variant
	for v := range variants {
		if implementations[v] != nil {
			list = append(list, v)
		}
	}
	return list
}

// Active returns the variant in use: the last of [Variants], unless STARLING_KERNELS or [Use] said otherwise.
func Active() Variant { return active.variant }

// Use makes v the variant in use, without the self-test. It fails if this build or processor doesn't have it. Not while anything computes, and
// [Activations] prepared before must be prepared again: meant for start-up and for tests.
func Use(v Variant) error {
	if v >= variants || implementations[v] == nil {
		return fmt.Errorf("%v kernels: this build or processor does not have them", v)
	}
	active = implementations[v]
	return nil
}
