package meta

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// directRequires returns the modules that go.mod requires for the product itself.
func directRequires(gomod string) (out []string) {
	block := false
	for _, line := range strings.Split(gomod, "\n") {
		line, comment, _ := strings.Cut(line, "//")
		words := strings.Fields(line)
		switch {
		case len(words) == 0:
			continue
		case words[0] == "require" && len(words) > 1 && words[1] == "(":
			block = true
			continue
		case words[0] == ")":
			block = false
			continue
		case words[0] == "require":
			words = words[1:]
		case !block:
			continue
		}
		if strings.TrimSpace(comment) != "indirect" {
			out = append(out, words[0])
		}
	}
	return out
}

// reason is a line of ARCHITECTURE.md's list of dependencies: a module path in backquotes and, after a dash, why.
var reason = regexp.MustCompile("^- `([^`]+)` +[—–-] +\\S")

// checkDependencies compares go.mod with the reasons in ARCHITECTURE.md.
func checkDependencies(t *testing.T, r tree) (findings []string) {
	if !slices.Contains(r.files, "ARCHITECTURE.md") {
		return []string{"ARCHITECTURE.md: missing; it holds the reason for each dependency as a line \"- `module` — why\""}
	}
	want := directRequires(string(r.read(t, "go.mod")))
	var have []string
	for _, line := range strings.Split(string(r.read(t, "ARCHITECTURE.md")), "\n") {
		if m := reason.FindStringSubmatch(line); m != nil {
			have = append(have, m[1])
		}
	}
	for _, m := range want {
		if !slices.Contains(have, m) {
			findings = append(findings, fmt.Sprintf("ARCHITECTURE.md: no line \"- `%s` — why\" for a direct dependency", m))
		}
	}
	for _, m := range have {
		if strings.Contains(strings.Split(m, "/")[0], ".") && !slices.Contains(want, m) {
			findings = append(findings, fmt.Sprintf("ARCHITECTURE.md: a reason for `%s`, which go.mod doesn't require directly", m))
		}
	}
	return findings
}

func TestDependencies(t *testing.T) { report(t, checkDependencies(t, repository(t))) }

func TestDependenciesFindsWhatIsWrong(t *testing.T) {
	gomod := "module x\n\nrequire example.com/one v1.0.0\n\nrequire (\n\texample.com/two v1.0.0\n\texample.com/deep v1.0.0 // indirect\n)\n\nreplace example.com/two => ./two\n"
	expect(t, checkDependencies(t, sample(t, map[string]string{"go.mod": gomod})), "ARCHITECTURE.md: missing")
	expect(t, checkDependencies(t, sample(t, map[string]string{
		"go.mod":          gomod,
		"ARCHITECTURE.md": "- `example.com/one` — a reason\n- `example.com/two`\n- `example.com/old` — was needed\n- `Range` — a noun\n",
	})), "ARCHITECTURE.md: a reason for `example.com/old`", "ARCHITECTURE.md: no line \"- `example.com/two`")
}
