package meta

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// pkg is one line of the lattice: what a package of ours may import of ours, and why.
type pkg struct {
	may   []string // in the product
	tests []string // in its tests, beside that
	why   string
}

// lattice is every package of this module. Arrows point down only; a new edge needs a reason.
var lattice = map[string]pkg{
	"cmd/starling": {
		may: []string{"node", "node/control", "node/gateway", "session", "swarm", "runtime", "runtime/golden", "runtime/tokenizer", "kernels", "route/sim"},
		why: "wires flags to the node; makes and joins swarms while no node runs; the single-process reference that the demo compares with must not pass through a node, nor may the self-test",
	},
	"node": {
		may:   []string{"node/control", "node/metrics", "swarm", "swarm/ledbat", "swarm/wire", "artifacts", "route", "route/assign", "runtime", "runtime/gguf", "runtime/tokenizer"},
		tests: []string{"runtime/runtimetest"},
		why:   "the composition root: alone sees the network, the bytes, the plan and the engine together",
	},
	"node/control": {may: []string{"route"}, why: "the local interface shows plans as they are; it sees neither libp2p nor tensors"},
	"node/metrics": {why: "figures and their text format; knows of the node what it is told"},
	"node/gateway": {may: []string{"session", "node/control", "route"}, tests: []string{"node", "swarm", "runtime", "runtime/runtimetest"}, why: "HTTP over the same sessions as the command line; sees neither libp2p nor tensors"},
	"node/ledger":  {may: []string{"swarm/wire"}, why: "a pure fold over signed receipts"},
	"session": {
		may: []string{"node/control"}, tests: []string{"node", "swarm", "runtime", "runtime/runtimetest"},
		why: "conversations with a model over the local interface; its tests compare them, over real nodes, with the engine",
	},
	"swarm":        {may: []string{"swarm/wire"}, why: "everything libp2p, and nothing of models"},
	"swarm/ledbat": {why: "bytes over any connection; who is busy it is told"},
	"swarm/wire":   {why: "the wire format is bytes and nothing else"},
	"artifacts":    {may: []string{"runtime/gguf"}, why: "reads the tensor table to map layers to bytes; neither the network nor the engine"},
	"route":        {why: "pure: values in, a plan out"},
	"route/assign": {may: []string{"route"}, why: "which layers a volunteer holds; pure, too, and plans nothing"},
	"route/sim":    {may: []string{"route", "route/assign", "swarm/wire"}, why: "plays swarms with the real planner and counts real frames"},
	"runtime":      {may: []string{"runtime/gguf", "runtime/tokenizer", "kernels"}, tests: []string{"runtime/runtimetest", "runtime/golden"}, why: "runs layers on this machine; knows no network"},
	"runtime/gguf": {why: "a file format"},
	"runtime/golden": {
		may: []string{"runtime", "runtime/tokenizer"}, tests: []string{"runtime/runtimetest", "kernels"},
		why: "compares the engine with reference implementations, through the boundary that everybody uses",
	},
	"runtime/tokenizer": {
		may: []string{"runtime/tokenizer/template"}, tests: []string{"runtime/gguf"},
		why: "text to tokens; its tests read published vocabularies from GGUF files",
	},
	"runtime/tokenizer/template": {why: "an interpreter for untrusted chat templates"},
	"runtime/runtimetest":        {may: []string{"runtime", "runtime/gguf", "runtime/tokenizer", "kernels"}, why: "the suite that every engine behind runtime's boundary passes"},
	"kernels":                    {tests: []string{"runtime/gguf"}, why: "arithmetic on slices; its tests read published tensors from GGUF files"},
	"bench/torrents":             {may: []string{"artifacts", "swarm", "runtime/gguf"}, why: "torrents over the swarm's streams and over plain connections, side by side"},
	"bench/delay":                {why: "a network to measure in; moves packets between files and knows nothing else"},
	"test":                       {tests: []string{"swarm", "node", "node/control", "session", "runtime", "runtime/runtimetest"}, why: "nodes in networks of several machines, as far as one machine can have them"},
	"internal/meta":              {why: "reads the repository as text"},
	"internal/testswarm":         {may: []string{"*"}, why: "many nodes in one process"},
}

// testOnly are packages that exist for tests: nothing in the product imports them.
var testOnly = []string{"internal/testswarm", "runtime/runtimetest"}

// foreign says who may import what from outside the standard library, and why nobody else. A path counts with all below it.
var foreign = []struct {
	path, tests string
	by          []string // empty: tests only
	why         string
}{
	{path: "github.com/libp2p", by: []string{"swarm"}, why: "no libp2p type leaves swarm"},
	{path: "github.com/multiformats", by: []string{"swarm"}, why: "libp2p's own address and hash types"},
	{path: "github.com/ipfs", by: []string{"swarm"}, why: "DHT keys, and the logger that libp2p must be told to be quiet in"},
	{path: "github.com/anacrolix/torrent", by: []string{"artifacts"}, why: "no torrent type leaves artifacts"},
	{path: "github.com/prometheus", by: []string{"node/metrics"}, why: "figures are counted in one package"},
	{path: "golang.org/x/time", by: []string{"artifacts"}, why: "rate limits, in the torrent library's terms"},
	{path: "golang.org/x/sys/cpu", by: []string{"kernels"}, why: "CPU features"},
	{path: "golang.org/x/sys", by: []string{"runtime", "cmd/starling"}, tests: "test", why: "memory mapping, file system facts, the priority of the process; packets, in tests"},
	{path: "lukechampine.com/blake3", by: []string{"runtime", "runtime/runtimetest", "node", "cmd/starling"}, why: "digests of KV, logits and seams"},
	{path: "github.com/alecthomas/kong", by: []string{"cmd/starling"}, why: "only the command has a command line"},
	{path: "github.com/schollz/progressbar", by: []string{"cmd/starling"}, why: "only the command draws"},
	{path: "golang.org/x/term", by: []string{"cmd/starling"}, why: "only the command has a terminal"},
	{path: "github.com/rogpeppe/go-internal", tests: "cmd/starling", why: "testscript runs the command's sessions"},
}

// barred are standard packages that some packages do without, so that what they are shows in what they import.
var barred = []struct {
	in, std []string
	why     string
}{
	{[]string{"route"}, []string{"time", "os", "io", "net", "context", "sync", "math/rand", "math/rand/v2", "syscall"}, "planning has no clock, no sockets, no dice and no goroutines"},
	{[]string{"swarm/wire"}, []string{"os", "net", "context", "sync", "math/rand", "math/rand/v2", "syscall"}, "a format reads and writes bytes, and blocks on nothing"},
	{[]string{"kernels"}, []string{"net", "context", "time", "math/rand", "math/rand/v2", "syscall"}, "arithmetic on slices; os only for STARLING_KERNELS"},
	{[]string{"runtime", "runtime/gguf", "runtime/tokenizer", "runtime/tokenizer/template"}, []string{"net", "net/http"}, "the engine knows no network"},
}

// pathHas reports whether p is dir or below it.
func pathHas(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

func checkImports(sources []source) (findings []string) {
	bad := func(s source, format string, args ...any) {
		findings = append(findings, fmt.Sprintf("%s: %s", s.name, fmt.Sprintf(format, args...)))
	}
	for _, s := range sources {
		rule, known := lattice[s.dir]
		if !known {
			findings = append(findings, fmt.Sprintf("%s: package isn't in the lattice: add it to internal/meta/imports_test.go with what it may import and why", s.dir))
			continue
		}
		for _, spec := range s.Imports {
			p, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				bad(s, "import %s: %v", spec.Path.Value, err)
				continue
			}
			first, _, _ := strings.Cut(p, "/")
			switch {
			case p == module || strings.HasPrefix(p, module+"/"):
				checkOurs(s, rule, strings.TrimPrefix(strings.TrimPrefix(p, module), "/"), bad)
			case strings.Contains(first, "."):
				checkForeign(s, p, bad)
			case p == "C":
				bad(s, "imports C: the product builds without cgo")
			case !s.test:
				for _, b := range barred {
					if slices.Contains(b.in, s.dir) && slices.Contains(b.std, p) {
						bad(s, "imports %s: %s", p, b.why)
					}
				}
			}
		}
	}
	return findings
}

func checkOurs(s source, rule pkg, to string, bad func(source, string, ...any)) {
	switch {
	case to == s.dir && s.test: // an external test
	case !s.test && slices.Contains(testOnly, to) && !slices.Contains(testOnly, s.dir):
		bad(s, "imports %s, which is for tests only", to)
	case s.test && (to == "internal/testswarm" || slices.Contains(rule.tests, to)):
	case slices.Contains(rule.may, to), slices.Contains(rule.may, "*"):
	default:
		bad(s, "imports %s; %s may import %v: %s", to, s.dir, rule.may, rule.why)
	}
}

func checkForeign(s source, p string, bad func(source, string, ...any)) {
	var why string
	for _, f := range foreign {
		if !pathHas(p, f.path) {
			continue
		}
		if slices.Contains(f.by, s.dir) || s.test && f.tests == s.dir || s.dir == "internal/testswarm" {
			return
		}
		why += "; " + f.why
	}
	if why == "" {
		why = "; it isn't listed in internal/meta/imports_test.go"
	}
	bad(s, "imports %s%s", p, why)
}

func TestImports(t *testing.T) { report(t, checkImports(repository(t).parse(t))) }

func TestImportsFindsWhatIsWrong(t *testing.T) {
	r := sample(t, map[string]string{
		"go.mod":                         "module " + module,
		"route/a.go":                     `package route; import ("time"; "` + module + `/swarm"; "fmt")`,
		"route/a_test.go":                `package route_test; import ("time"; "` + module + `/route")`,
		"swarm/a.go":                     `package swarm; import ("github.com/libp2p/go-libp2p"; "` + module + `/swarm/wire")`,
		"node/a.go":                      `package node; import ("github.com/libp2p/go-libp2p/core/peer"; "` + module + `/internal/testswarm")`,
		"node/a_test.go":                 `package node; import "` + module + `/internal/testswarm"`,
		"kernels/a_windows.go":           `package kernels; import ("golang.org/x/sys/cpu"; "golang.org/x/sys/windows")`,
		"util/a.go":                      `package util`,
		"artifacts/a.go":                 `package artifacts; import "C"; import "example.com/zip"`,
		"third_party/x/go.mod":           "module x",
		"third_party/x/a.go":             `package x; import "example.com/anything"`,
		"cmd/starling/script.go":         `package main; import "github.com/rogpeppe/go-internal/testscript"`,
		"cmd/starling/script_test.go":    `package main; import "github.com/rogpeppe/go-internal/testscript"`,
		"runtime/testdata/src/bad.go":    `package bad; import "example.com/anything"`,
		"kernels/_asm/amd64/generate.go": `package main; import "example.com/anything"`,
	})
	expect(t, checkImports(r.parse(t)),
		"artifacts/a.go: imports C",
		"artifacts/a.go: imports example.com/zip",
		"cmd/starling/script.go: imports github.com/rogpeppe",
		"kernels/a_windows.go: imports golang.org/x/sys/windows",
		"node/a.go: imports github.com/libp2p",
		"node/a.go: imports internal/testswarm, which is for tests only",
		"route/a.go: imports swarm",
		"route/a.go: imports time",
		"util: package isn't in the lattice",
	)
}

// Every line of the lattice has a reason, and its arrows lead to packages in the lattice and never in a circle.
func TestLatticeIsALattice(t *testing.T) {
	var visit func(p string, above []string)
	visit = func(p string, above []string) {
		if slices.Contains(above, p) {
			t.Errorf("a circle: %v → %s", above, p)
			return
		}
		for _, to := range lattice[p].may {
			if _, known := lattice[to]; to != "*" && !known {
				t.Errorf("%s → %s, which isn't in the lattice", p, to)
			}
			visit(to, append(slices.Clone(above), p))
		}
	}
	for p, rule := range lattice {
		if rule.why == "" {
			t.Errorf("%s has no reason", p)
		}
		visit(p, nil)
		if last := p[strings.LastIndex(p, "/")+1:]; slices.Contains([]string{"util", "utils", "common", "types", "core", "helpers", "misc"}, last) {
			t.Errorf("%s: a name that says nothing", p)
		}
	}
}
