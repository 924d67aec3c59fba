package kernels

import (
	"encoding/hex"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// TestSelfTest compares the bits of every kernel with the committed digests. It is the test to run for another
// architecture (under qemu): it needs no files. A change here is a change of the specification: say so in CHANGELOG.md.
func TestSelfTest(t *testing.T) {
	for _, u := range selfTests {
		if sum := u.digest(); hex.EncodeToString(sum[:8]) != u.want {
			t.Errorf("%s: %x, want %s", u.name, sum[:8], u.want)
		}
	}
	digest, err := SelfTest()
	if err != nil {
		t.Error(err)
	}
	again, _ := SelfTest()
	if digest != again {
		t.Error("not deterministic")
	}
}

// TestSelfTestRunsAll has every function of every variant say that it was called: the self-test must call all of them, but
// those that compute no number of a model.
func TestSelfTestRunsAll(t *testing.T) {
	eachVariant(t, func(t *testing.T) {
		own := *active
		before := active
		active = &own
		defer func() { active = before }()
		idle := map[string]bool{}
		var watch func(v reflect.Value, name string)
		watch = func(v reflect.Value, name string) {
			switch v.Kind() {
			case reflect.Struct:
				for i := range v.NumField() {
					watch(v.Field(i), name+"."+v.Type().Field(i).Name)
				}
			case reflect.Array:
				for i := range v.Len() {
					watch(v.Index(i), fmt.Sprintf("%s[%d]", name, i))
				}
			case reflect.Func:
				if v.IsNil() {
					return
				}
				idle[name] = true
				v = reflect.NewAt(v.Type(), v.Addr().UnsafePointer()).Elem() // of unexported fields
				kernel := reflect.ValueOf(v.Interface())
				v.Set(reflect.MakeFunc(v.Type(), func(args []reflect.Value) []reflect.Value {
					delete(idle, name)
					return kernel.Call(args)
				}))
			}
		}
		watch(reflect.ValueOf(&own).Elem(), "")
		for _, name := range []string{".read", ".peakInt8", ".peakF32"} {
			delete(idle, name)
		}
		if _, err := SelfTest(); err != nil {
			t.Error(err)
		}
		for name := range idle {
			t.Errorf("%s is never called", name)
		}
	})
}

// TestSelfTestFails changes one expectation.
func TestSelfTestFails(t *testing.T) {
	old := selfTests[2].want
	defer func() { selfTests[2].want = old }()
	selfTests[2].want = "0000000000000000"
	if _, err := SelfTest(); err == nil || !strings.Contains(err.Error(), selfTests[2].name) {
		t.Errorf("error %v, want one that names %q", err, selfTests[2].name)
	}
}
