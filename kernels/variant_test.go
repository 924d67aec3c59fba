package kernels

import (
	"flag"
	"os"
	"testing"
)

// wantVariant is for jobs on an emulated or known processor: they fail if another variant was chosen at start.
var wantVariant = flag.String("variant", "", "fail unless these kernels were selected at start")

// eachVariant runs test under every variant that this processor has.
func eachVariant(t *testing.T, test func(t *testing.T)) {
	before := Active()
	t.Cleanup(func() {
		if err := Use(before); err != nil {
			t.Fatal(err)
		}
	})
	for _, v := range Variants() {
		t.Run(v.String(), func(t *testing.T) {
			if err := Use(v); err != nil {
				t.Fatal(err)
			}
			test(t)
		})
	}
}

// TestVariants checks that the fastest variant is in use by default, and that names go there and back.
func TestVariants(t *testing.T) {
	if *wantVariant != "" && Active().String() != *wantVariant {
		t.Errorf("%v kernels were selected, not %v (%v; %v)", Active(), *wantVariant, VariantError(), Distrusted())
	}
	for v := range variants {
		if got, err := parseVariant(v.String()); err != nil || got != v {
			t.Errorf("%v parses to %v, %v", v, got, err)
		}
	}
	if _, err := parseVariant("no such thing"); err == nil {
		t.Error("an unknown name was accepted")
	}
	if err := Use(variants); err == nil {
		t.Error("a variant that does not exist was accepted")
	}
	list := Variants()
	if best := list[len(list)-1]; os.Getenv(variantEnv) == "" && Active() != best {
		t.Errorf("%v kernels were selected, not the best of %v", Active(), list)
	}
}

// TestVariantTypes looks for a product with every quantised type in every variant that has products.
func TestVariantTypes(t *testing.T) {
	eachVariant(t, func(t *testing.T) {
		for _, typ := range allTypes {
			if active.variant != Generic && typ.Form() != Dense && active.group[typ] == nil {
				t.Errorf("no product with %v", typ)
			}
		}
	})
}

// TestUnproven gives an unproven variant wrong products: it must not be chosen, nor used if the environment asks for it.
// With right ones it must be.
func TestUnproven(t *testing.T) {
	list := Variants()
	if len(list) == 1 {
		t.Skip("not run: this build or processor has no assembly; make test on amd64 with AVX2 runs it")
	}
	before, all, why := active, implementations, distrusted
	defer func() { active, implementations, distrusted = before, all, why }()
	for _, wrong := range []bool{true, false} {
		implementations = all
		fake := *all[list[len(list)-1]]
		fake.variant, fake.unproven = variants-1, true
		if wrong {
			fake.group[Q4_K] = func(*groupArgs) {}
		}
		implementations[variants-1] = &fake
		distrusted = nil
		if err := obey(fake.variant.String()); (err != nil) != wrong {
			t.Errorf("wrong products %v, the environment gets: %v", wrong, err)
		}
		choose()
		if chosen := active == &fake; chosen == wrong {
			t.Errorf("wrong products %v, chosen %v", wrong, chosen)
		}
		if there := implementations[variants-1] != nil; there == wrong {
			t.Errorf("wrong products %v, still listed %v", wrong, there)
		}
		if err := Distrusted(); (err != nil) != wrong {
			t.Errorf("wrong products %v, said %v", wrong, err)
		}
	}
}
