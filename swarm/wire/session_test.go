package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

var rewrite = flag.Bool("rewrite", false, "write testdata/frames.txt anew; review the difference")

// sessionMessages has every message of types 1–79, full and empty.
func sessionMessages() map[string]Message {
	h := Head{SessionID{1, 2, 15: 3}, Epoch{4, 5}}
	stages := []PlanStage{{"S0", 0, 3, [32]byte{9}}, {"S1", 3, 5, [32]byte{8}}}
	grant := Grant{Session: h.Session, Model: [32]byte{7}, Client: "C", Decoder: "D", ClientEpoch: 4, Trust: "any", Budget: 100, Numerics: Numerics{2, 3, []uint32{3, 5}}, Expires: 1 << 33, Signature: []byte{1, 2}}
	plan := Plan{Head: h, Model: [32]byte{7}, Profile: [32]byte{6}, Decoder: "D", Stages: stages, DecoderFirst: 5, Layers: 6, Capacity: 100, Known: 60, Window: 4, PushKV: true, Signature: []byte{3}}
	sampling := Sampling{1, 0.5, 0.25, 1, 40, 0.95, 0.9, 0.1, 0.5, 0.125, -1, 1.5, 0.25, -0.5, 0.75, 1.75, 2, 64, []string{"\n", ":"}, []TokenBias{{7, -2}, {9, 3}}}
	stats := StageStats{"S0", 0, 3, 23, 4, 1e9, 1e8, 1e7, 1e6, 2048, 4096, [32]byte{5}, [][32]byte{{1}, {2}, {3}}, []ChunkTimes{{0, 8, 1, 2, 3, 4, 5}, {8, 3, 2, 3, 4, 0, 0}}}
	probe := Probe{First: 3, Last: 9, Layers: []uint32{0, 2, 6}, Logits: true}
	return map[string]Message{
		"StageOpen":          &StageOpen{h, grant, plan, 1, true, probe, []Mark{{256, Prefix{2}}, {300, Prefix{3}}}},
		"StageOpened":        &StageOpened{h, []uint32{256}},
		"StageOpened, new":   &StageOpened{Head: h},
		"Chunk":              &Chunk{h, 254, 3, 2, false, true, Prefix{1}, []Prefix{{4}}, []int32{5, 6, math.MaxInt32}},
		"Chunk, no IDs":      &Chunk{h, 8, 3, 0, true, false, Prefix{1}, nil, nil},
		"Rewind":             &Rewind{h, 9, Prefix{1}},
		"Handover":           &Handover{h, 0, 9, Prefix{1}, [][32]byte{{2}, {3}}},
		"Inherit":            &Inherit{h, grant, 2, 4, 3, 9},
		"Seam":               &Seam{h, 3, 8, 2, Prefix{1}, []byte{1, 2, 3, 4, 5, 6, 7, 8}},
		"SeamCredit":         &SeamCredit{h, 11},
		"StageClose":         &StageClose{h, true},
		"StageClosed":        &StageClosed{h, stats},
		"Progress":           &Progress{h, 11},
		"Refusal":            &Refusal{h, CodePrefix, "S1", "other tokens", 1500 * time.Millisecond},
		"Ping":               &Ping{9, []SessionID{{1}, {2}}},
		"Pong":               &Pong{9, nil},
		"KVSlice":            &KVSlice{h, 2, 8, 2, Prefix{1}, 64, 16, bytes.Repeat([]byte{7}, 48)},
		"KVAck":              &KVAck{h, 11},
		"SessionOpen":        &SessionOpen{h, grant, Route{stages, 5, 64, 4, true, true}, [32]byte{4}, []int32{1, 2}, 16, []int32{2}, sampling, false, true, 2500, 3, true, true, true, Probe{}, "S2"},
		"SessionOpen, probe": &SessionOpen{Head: h, Grant: grant, Tokens: []int32{1, 2}, Probe: probe},
		"Rows":               &Rows{h, 3, 8, 2, []byte{1, 2, 3, 4, 5, 6, 7, 8}},
		"SessionOpened":      &SessionOpened{h},
		"Token":              &Token{h, 23, 99, -0.5, []Logprob{{99, -0.5}, {4, -1.5}}},
		"Done":               &Done{h, ReasonStop, SessionStats{h.Epoch, 1, 2, 3, 4, 1, 5, 7, 6, 30, 8, [32]byte{1}, [32]byte{2}, stats, []StageStats{stats, {Peer: "S1"}}, []string{"lost S1"}}},
		"Cancel":             &Cancel{h},
		"BundleRequest":      &BundleRequest{[32]byte{1}},
		"Bundle":             &Bundle{[]byte("bundle")},
		"Refusal, empty":     &Refusal{},
		"Ping, empty":        &Ping{},
		"Token, bare":        &Token{Head: h, Position: 23, ID: 99},
		"Done, empty":        &Done{},
	}
}

func names(m map[string]Message) []string {
	var n []string
	for name := range m {
		n = append(n, name)
	}
	slices.Sort(n)
	return n
}

func TestSessionMessagesRoundTrip(t *testing.T) {
	all := sessionMessages()
	types := map[Type]bool{}
	for _, name := range names(all) {
		m := all[name]
		types[m.Type()] = true
		frame := Append(nil, m)
		got, err := Read(bytes.NewReader(frame))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !reflect.DeepEqual(got, m) {
			t.Errorf("%s: read %+v, wrote %+v", name, got, m)
		}
		body := frame[headerBytes:]
		for n := range body { // every shorter body, and one byte more
			if _, err := Decode(m.Type(), body[:n]); err == nil && !endsOpen(m) {
				t.Errorf("%s: %d of %d bytes decode", name, n, len(body))
			} else if err != nil && !errors.Is(err, ErrFormat) {
				t.Errorf("%s: error %v doesn't wrap ErrFormat", name, err)
			}
		}
		if _, err := Decode(m.Type(), append(slices.Clone(body), 0)); err == nil && !endsOpen(m) {
			t.Errorf("%s: a surplus byte is accepted", name)
		}
	}
	for typ := Type(1); typ < 80; typ++ {
		if newMessage(typ) != nil && !types[typ] {
			t.Errorf("frame type %d has no sample", typ)
		}
	}
}

// endsOpen reports whether a message takes whatever is left of its frame.
func endsOpen(m Message) bool {
	switch m.(type) {
	case *Seam, *KVSlice, *Rows, *Bundle:
		return true
	}
	return false
}

// Rows say whose they are before the whole frame is here.
func TestRowsFor(t *testing.T) {
	told := 0
	for name, m := range sessionMessages() {
		b := Append(nil, m)
		var want SessionID
		switch m := m.(type) {
		case *Seam:
			want = m.Session
		case *KVSlice:
			want = m.Session
		case *Rows:
			want = m.Session
		}
		if want != (SessionID{}) {
			told++
			if got := RowsFor(b[:FrameHead-1]); got != (SessionID{}) {
				t.Errorf("%s: session %v is told before it has come", name, got)
			}
			b = b[:FrameHead]
		}
		if got := RowsFor(b); got != want {
			t.Errorf("%s: session %v, want %v", name, got, want)
		}
	}
	if told < 3 {
		t.Errorf("%d frames with rows among the samples, want seams, KV and a probe's", told)
	}
}

// TestGoldenFrames holds the format still: docs/protocol.md says what these
// bytes mean.
func TestGoldenFrames(t *testing.T) {
	all := sessionMessages()
	var b strings.Builder
	for _, name := range names(all) {
		fmt.Fprintf(&b, "%s\n%s\n", name, hex.EncodeToString(Append(nil, all[name])))
	}
	path := filepath.Join("testdata", "frames.txt")
	if *rewrite {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != b.String() {
		t.Errorf("frames differ from %s: a changed message needs a new protocol name", path)
	}
}

func TestFrameLimits(t *testing.T) {
	head := func(n uint32, typ Type) []byte {
		return append(binary.LittleEndian.AppendUint32(nil, n), byte(typ))
	}
	for name, b := range map[string][]byte{
		"empty frame":         head(0, TypePing),
		"unknown type":        head(9, 79),
		"4 GiB of control":    head(math.MaxUint32, TypePing),
		"more than a slice":   head(MaxSlice+512, TypeKVSlice),
		"more than a seam":    head(MaxSeam+2, TypeSeam),
		"more than a bundle":  head(MaxBundle+2, TypeBundle),
		"more than 1 MiB":     head(MaxControl+2, TypeStageClosed),
		"more than 8 MiB":     head(maxDone+2, TypeDone),
		"2^31 tokens claimed": append(head(64, TypeChunk), bytes.Repeat([]byte{0xff}, 63)...),
	} {
		if _, err := Read(bytes.NewReader(b)); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v, want a format error", name, err)
		}
	}
	// A large claim without the bytes costs little.
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _, err := ReadFrame(io.MultiReader(bytes.NewReader(head(MaxSeam, TypeSeam)), bytes.NewReader(make([]byte, 1000))))
	runtime.ReadMemStats(&after)
	if err != io.ErrUnexpectedEOF {
		t.Errorf("truncated seam: %v", err)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 4<<20 {
		t.Errorf("a truncated seam of 64 MiB cost %d bytes", n)
	}
	if _, _, err := ReadFrame(bytes.NewReader(nil)); err != io.EOF {
		t.Errorf("clean end: %v", err)
	}
}

func TestPrefixChain(t *testing.T) {
	p := NewPrefix([32]byte{1}, [32]byte{2}, [32]byte{3})
	tokens := []int32{5, 6, 7, 8}
	whole := p.Extend(tokens)
	if p.Extend(tokens[:1]).Extend(tokens[1:3]).Extend(tokens[3:]) != whole {
		t.Error("the chain depends on how tokens are cut into chunks")
	}
	for i, other := range []Prefix{
		NewPrefix([32]byte{9}, [32]byte{2}, [32]byte{3}), NewPrefix([32]byte{1}, [32]byte{9}, [32]byte{3}), NewPrefix([32]byte{1}, [32]byte{2}, [32]byte{9}),
	} {
		if other.Extend(tokens) == whole {
			t.Errorf("prefix %d collides with that of another model, profile or salt", i)
		}
	}
	if p.Extend([]int32{5, 6, 8, 7}) == whole {
		t.Error("order of tokens doesn't matter")
	}
}

func TestEpochOrder(t *testing.T) {
	order := []Epoch{{0, 0}, {0, 1}, {1, 0}, {1, 7}, {2, 0}}
	for i, a := range order {
		for j, b := range order {
			if got, want := a.Compare(b), signOf(i-j); got != want {
				t.Errorf("%v against %v: %d, want %d", a, b, got, want)
			}
		}
	}
}

func signOf(n int) int {
	switch {
	case n < 0:
		return -1
	case n > 0:
		return 1
	}
	return 0
}

func TestPlanCheck(t *testing.T) {
	good := func() Plan {
		return Plan{Stages: []PlanStage{{Peer: "A", First: 0, Last: 2}, {Peer: "B", First: 2, Last: 4}}, DecoderFirst: 4, Layers: 4, Capacity: 1, Window: 1}
	}
	p := good()
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Plan){
		"a gap":             func(p *Plan) { p.Stages[1].First = 3 },
		"an overlap":        func(p *Plan) { p.Stages[1].First = 1 },
		"an empty stage":    func(p *Plan) { p.Stages[1].Last = 2; p.DecoderFirst = 2 },
		"no stages":         func(p *Plan) { p.Stages = nil; p.DecoderFirst = 0 },
		"a late decoder":    func(p *Plan) { p.DecoderFirst = 3 },
		"too many layers":   func(p *Plan) { p.Stages[1].Last = 5; p.DecoderFirst = 5 },
		"a nameless stage":  func(p *Plan) { p.Stages[0].Peer = "" },
		"no window":         func(p *Plan) { p.Window = 0 },
		"no capacity":       func(p *Plan) { p.Capacity = 0 },
		"an endless window": func(p *Plan) { p.Window = 1000 },
		"a long past":       func(p *Plan) { p.Known = 2 },
	} {
		p := good()
		change(&p)
		if p.Check() == nil {
			t.Errorf("a plan with %s passes", name)
		}
	}
}

// FuzzDecode: whatever bytes decode, encode to the same bytes again.
func FuzzDecode(f *testing.F) {
	for _, m := range sessionMessages() {
		f.Add(uint8(m.Type()), Append(nil, m)[headerBytes:])
	}
	f.Fuzz(func(t *testing.T, typ uint8, body []byte) {
		m, err := Decode(Type(typ), body)
		if err != nil {
			if !errors.Is(err, ErrFormat) {
				t.Fatalf("error %v doesn't wrap ErrFormat", err)
			}
			return
		}
		if got := Append(nil, m)[headerBytes:]; !bytes.Equal(got, body) {
			t.Fatalf("type %d: %x decodes to %+v and encodes to %x", typ, body, m, got)
		}
	})
}

// FuzzReadFrame: a stream of arbitrary bytes ends in an error or in frames,
// never in a panic or in more memory than was sent.
func FuzzReadFrame(f *testing.F) {
	for _, m := range sessionMessages() {
		f.Add(Append(Append(nil, m), m))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		for {
			if _, err := Read(r); err != nil {
				return
			}
		}
	})
}
