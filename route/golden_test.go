package route

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "rewrite testdata/*.txt with what the planner says now; commit only what you understand")

// Scripts: lines set up a problem, and each `plan` line is followed by what Explain says, indented by "| ".
//
//	# a comment
//	model layers=8 weight=100MB flops=0.4GF kv=4kB seam=16kB head=200MB [cuts=2,4,6] [context=4096]
//	peer NAME [holds=0-7] [head] [embed] [all] [nodecode] [self] prefill=100GF decode=20GB kv=2GB up=5MB down=20MB [memory=4GB disk=500MB] [fails=0.5] …
//	link A B rtt=20ms [rate=1MB]      (rtt both ways, rate from A to B)
//	drop NAME                         (takes an offer back)
//	plan prompt=1000 new=100 [shape=across] [chunk=64] [cuts=2,4] [assign=a,-,c] [decoder=a] [self] [exclude=a:why] [include=b] [guesses=4 accepted=2] [held=900 former=a:0-3,b:4-7]
//
// Layer ranges are inclusive, as in the interface.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			old, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var s script
			var out strings.Builder
			for i, line := range strings.Split(strings.TrimSuffix(string(old), "\n"), "\n") {
				if strings.HasPrefix(line, "|") {
					continue
				}
				out.WriteString(line + "\n")
				answer, err := s.run(line)
				if err != nil {
					t.Fatalf("%s:%d: %v", file, i+1, err)
				}
				for _, l := range strings.Split(strings.TrimSuffix(answer, "\n"), "\n") {
					if answer != "" {
						out.WriteString(strings.TrimRight("| "+l, " ") + "\n")
					}
				}
			}
			if out.String() == string(old) {
				return
			}
			if *rewrite {
				if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			t.Errorf("%s: the planner now says (go test -run Golden -rewrite, then read the diff):\n%s", file, out.String())
		})
	}
}

// script is the state that a script builds up.
type script struct {
	m     Model
	peers []Peer
	links []Link
}

// run performs one line and returns what it prints.
func (s *script) run(line string) (string, error) {
	words := strings.Fields(line)
	if len(words) == 0 || words[0] == "#" {
		return "", nil
	}
	verb, words := words[0], words[1:]
	switch verb {
	case "model":
		return "", s.model(words)
	case "peer":
		return "", s.peer(words)
	case "link":
		return "", s.link(words)
	case "drop":
		for i, p := range s.peers {
			if p.ID == words[0] {
				s.peers = append(s.peers[:i], s.peers[i+1:]...)
				return "", nil
			}
		}
		return "", fmt.Errorf("no peer %s", words[0])
	case "plan":
		return s.plan(words)
	}
	return "", fmt.Errorf("no verb %q", verb)
}

func (s *script) model(words []string) error {
	m := Model{}
	var weight, flops, kv float64
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "layers":
			m.Layers = int(amount(value))
		case "weight":
			weight = amount(value)
		case "flops":
			flops = amount(value)
		case "kv":
			kv = amount(value)
		case "seam":
			m.SeamBytes = int64(amount(value))
		case "head":
			m.HeadBytes = int64(amount(value))
			m.EmbedBytes, m.HeadFlops = m.HeadBytes, 2*float64(m.HeadBytes)
		case "context":
			m.Context = int(amount(value))
		case "cuts":
			m.Cuts = ints(value)
		default:
			return fmt.Errorf("model: %q", w)
		}
	}
	for i := range m.Layers {
		m.LayerWeightBytes = append(m.LayerWeightBytes, int64(weight))
		m.LayerFlops = append(m.LayerFlops, flops)
		m.KVBytesPerToken = append(m.KVBytesPerToken, int64(kv))
		if i > 0 && !strings.Contains(strings.Join(words, " "), "cuts=") {
			m.Cuts = append(m.Cuts, i)
		}
	}
	*s = script{m: m}
	return nil
}

func (s *script) peer(words []string) error {
	p := Peer{ID: words[0]}
	for _, w := range words[1:] {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "holds":
			first, last, _ := strings.Cut(value, "-")
			p.Holds = Range{int(amount(first)), int(amount(last)) + 1}
		case "all":
			p.Holds, p.Head, p.Embed = Range{0, s.m.Layers}, true, true
		case "head":
			p.Head = true
		case "embed":
			p.Embed = true
		case "nodecode":
			p.NoDecode = true
		case "self":
			p.Self = true
		case "prefill":
			p.PrefillFlops = amount(value)
		case "decode":
			p.DecodeBytesPerSec = amount(value)
		case "kv":
			p.KVFreeBytes = int64(amount(value))
		case "up":
			p.Up = amount(value)
		case "down":
			p.Down = amount(value)
		case "load":
			p.Load = amount(value)
		case "context":
			p.Context = int(amount(value))
		case "memory":
			p.MemoryBytes = int64(amount(value))
		case "disk":
			p.DiskBytesPerSec = amount(value)
		case "fails":
			p.FailuresPerHour = amount(value)
		default:
			return fmt.Errorf("peer: %q", w)
		}
	}
	s.peers = append(s.peers, p)
	return nil
}

func (s *script) link(words []string) error {
	l := Link{From: words[0], To: words[1]}
	for _, w := range words[2:] {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "rtt":
			l.RTT = amount(value)
		case "rate":
			l.BytesPerSec = amount(value)
		default:
			return fmt.Errorf("link: %q", w)
		}
	}
	s.links = append(s.links, l)
	return nil
}

func (s *script) plan(words []string) (string, error) {
	r := Request{Exclude: map[string]string{}, Reasons: true}
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "prompt":
			r.PromptTokens = int(amount(value))
		case "new":
			r.NewTokens = int(amount(value))
		case "chunk":
			r.Chunk = int(amount(value))
		case "shape":
			var err error
			if r.Shape, err = ParseShape(value); err != nil {
				return "", err
			}
		case "cuts":
			r.Cuts = ints(value)
		case "assign":
			r.Assign = strings.Split(strings.ReplaceAll(value, "-", ""), ",")
		case "decoder":
			r.Decoder = value
		case "self":
			r.PreferSelf = true
		case "exclude":
			id, why, _ := strings.Cut(value, ":")
			r.Exclude[id] = strings.ReplaceAll(why, "_", " ")
		case "guesses":
			r.Guesses = amount(value)
		case "accepted":
			r.Accepted = amount(value)
		case "held":
			r.HeldTokens = int(amount(value))
		case "former":
			for _, part := range strings.Split(value, ",") {
				peer, layers, _ := strings.Cut(part, ":")
				first, last, _ := strings.Cut(layers, "-")
				r.Former = append(r.Former, Stage{peer, Range{int(amount(first)), int(amount(last)) + 1}})
			}
		case "include":
			r.Include = strings.Split(value, ",")
		default:
			return "", fmt.Errorf("plan: %q", w)
		}
	}
	p, err := Make(s.m, s.peers, s.links, r)
	var none *NoRouteError
	if errors.As(err, &none) {
		text := "error: " + err.Error() + "\n"
		for _, why := range none.Reasons {
			text += fmt.Sprintf("– %s  %s\n", why.Peer, why.Text)
		}
		return text, nil
	}
	if err != nil {
		return "error: " + err.Error() + "\n", nil
	}
	if err := p.Validate(s.m, s.peers); err != nil {
		return "", err
	}
	return p.Explain(), nil
}

// amount parses a number with a decimal unit (k, M, G, T, then anything) or in milliseconds.
func amount(s string) float64 {
	i := len(strings.TrimRight(s, "kMGTBFms"))
	v, err := strconv.ParseFloat(s[:i], 64)
	if err != nil {
		panic(fmt.Sprintf("script: %q is no amount", s))
	}
	switch unit := s[i:]; {
	case unit == "ms":
		return v / 1e3
	case strings.HasPrefix(unit, "k"):
		return v * 1e3
	case strings.HasPrefix(unit, "M"):
		return v * 1e6
	case strings.HasPrefix(unit, "G"):
		return v * 1e9
	case strings.HasPrefix(unit, "T"):
		return v * 1e12
	}
	return v
}

func ints(s string) []int {
	var out []int
	for _, w := range strings.Split(s, ",") {
		if w != "" {
			out = append(out, int(amount(w)))
		}
	}
	return out
}
