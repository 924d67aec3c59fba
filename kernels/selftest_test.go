package kernels

import (
	"encoding/hex"
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

// TestSelfTestFails changes one expectation.
func TestSelfTestFails(t *testing.T) {
	old := selfTests[2].want
	defer func() { selfTests[2].want = old }()
	selfTests[2].want = "0000000000000000"
	if _, err := SelfTest(); err == nil || !strings.Contains(err.Error(), selfTests[2].name) {
		t.Errorf("error %v, want one that names %q", err, selfTests[2].name)
	}
}
