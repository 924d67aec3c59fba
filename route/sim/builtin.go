package sim

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"
)

//go:embed scenarios/*.json
var scenarios embed.FS

// Builtin returns a scenario that comes with the program.
func Builtin(name string) (*Scenario, error) {
	data, err := scenarios.ReadFile("scenarios/" + name + ".json")
	if err != nil {
		return nil, fmt.Errorf("no scenario %q: there are %s", name, strings.Join(BuiltinNames(), ", "))
	}
	return ParseScenario(data)
}

// BuiltinNames returns the names of those that there are, sorted.
func BuiltinNames() (names []string) {
	files, _ := fs.Glob(scenarios, "scenarios/*.json") // the pattern is a constant
	for _, f := range files {
		names = append(names, strings.TrimSuffix(strings.TrimPrefix(f, "scenarios/"), ".json"))
	}
	return names
}
