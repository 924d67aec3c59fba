package kernels

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unsafe"
)

// An emulator executes the text of generated AVX-512 functions, so that their steps are tested on every machine. It knows
// the instructions that they use, no others, and every access to memory must be within what the arguments grant. That
// the assembler encodes each as written is for runs on real processors and in Bochs to show (make avx512).

// vector is a register of 512 bits.
type vector [16]uint32

func (v *vector) bytes() (b [64]byte) {
	for i, d := range v {
		binary.LittleEndian.PutUint32(b[4*i:], d)
	}
	return b
}

func vectorOf(b [64]byte) (v vector) {
	for i := range v {
		v[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return v
}

// emulator is one processor. Addresses are made up: a region's number from bit 40 on, then the offset in it.
type emulator struct {
	integer [16]int64
	v       [32]vector
	mask    [8]uint64
	compare int64 // sign of the last comparison or result
	regions [][]byte
}

// memory returns n bytes at an address.
func (e *emulator) memory(addr int64, n int) []byte {
	r, off := addr>>40-1, addr&(1<<40-1)
	if r < 0 || r >= int64(len(e.regions)) || off+int64(n) > int64(len(e.regions[r])) {
		panic(fmt.Sprintf("%d bytes at offset %d of region %d, outside", n, off, r))
	}
	return e.regions[r][off : off+int64(n)]
}

// grant makes n bytes from p on accessible and returns their address.
func (e *emulator) grant(p unsafe.Pointer, n int) int64 {
	e.regions = append(e.regions, unsafe.Slice((*byte)(p), n))
	return int64(len(e.regions)) << 40
}

// instruction is one line: at most a jump's target, or what it does.
type instruction struct {
	run  func(e *emulator)
	jump func(e *emulator) bool
	to   int
	ran  bool
}

// program is a function's text.
type program struct {
	name string
	code []instruction
}

var integerRegisters = map[string]int{"AX": 0, "CX": 1, "DX": 2, "BX": 3, "SI": 6, "DI": 7,
	"R8": 8, "R9": 9, "R10": 10, "R11": 11, "R12": 12, "R13": 13, "R14": 14, "R15": 15}

var argumentOffsets = map[string]uintptr{
	"w": unsafe.Offsetof(groupArgs{}.w), "wNext": unsafe.Offsetof(groupArgs{}.wNext), "groups": unsafe.Offsetof(groupArgs{}.groups),
	"acts": unsafe.Offsetof(groupArgs{}.acts), "next": unsafe.Offsetof(groupArgs{}.next), "blocks": unsafe.Offsetof(groupArgs{}.blocks),
	"rows": unsafe.Offsetof(groupArgs{}.rows), "acc": unsafe.Offsetof(groupArgs{}.acc), "panel": unsafe.Offsetof(groupArgs{}.panel),
}

var (
	dataLine   = regexp.MustCompile(`^DATA (\w+)<>\+(\d+)\(SB\)/8, \$0x([0-9a-f]+)$`)
	textLine   = regexp.MustCompile(`^TEXT ·(\w+)\(SB\)`)
	labelLine  = regexp.MustCompile(`^(\w+):$`)
	memoryForm = regexp.MustCompile(`^(-?\d*)\((\w+)\)$`)
	argsForm   = regexp.MustCompile(`^groupArgs_(\w+)\(R9\)$`)
	constForm  = regexp.MustCompile(`^(\w+)<>\(SB\)$`)
)

// readPrograms parses an assembly file.
func readPrograms(file string) (programs map[string]*program, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%s: %v", file, r)
		}
	}()
	programs = map[string]*program{}
	constants := map[string][]byte{}
	var p *program
	labels := map[string]int{}
	jumps := map[*program]map[int]string{}
	for _, line := range strings.Split(string(text), "\n") {
		code, _, _ := strings.Cut(line, "//")
		code = strings.TrimSpace(code)
		if m := dataLine.FindStringSubmatch(code); m != nil {
			u, _ := strconv.ParseUint(m[3], 16, 64)
			constants[m[1]] = binary.LittleEndian.AppendUint64(constants[m[1]], u)
			continue
		}
		if m := textLine.FindStringSubmatch(code); m != nil {
			p = &program{name: m[1]}
			programs[m[1]] = p
			jumps[p] = map[int]string{}
			continue
		}
		if m := labelLine.FindStringSubmatch(code); m != nil {
			labels[m[1]] = len(p.code)
			continue
		}
		if p == nil || code == "" || code[0] == '#' || strings.HasPrefix(code, "GLOBL") {
			continue
		}
		op, rest, _ := strings.Cut(code, " ")
		if cond := condition(op); cond != nil {
			jumps[p][len(p.code)] = rest
			p.code = append(p.code, instruction{jump: cond})
			continue
		}
		p.code = append(p.code, instruction{run: compile(op, strings.Split(rest, ", "), constants)})
	}
	for p, js := range jumps {
		for at, label := range js {
			to, ok := labels[label]
			if !ok && label != "" {
				panic("no label " + label)
			}
			if label == "" { // RET
				to = len(p.code)
			}
			p.code[at].to = to
		}
	}
	return programs, nil
}

// condition returns when a jump is taken, or nil for other instructions.
func condition(op string) func(e *emulator) bool {
	switch op {
	case "JMP", "RET":
		return func(*emulator) bool { return true }
	case "JLT":
		return func(e *emulator) bool { return e.compare < 0 }
	case "JLE":
		return func(e *emulator) bool { return e.compare <= 0 }
	case "JGT":
		return func(e *emulator) bool { return e.compare > 0 }
	case "JEQ":
		return func(e *emulator) bool { return e.compare == 0 }
	case "JNE":
		return func(e *emulator) bool { return e.compare != 0 }
	}
	return nil
}

// run executes the program with the address of its arguments in place of the parameter.
func (p *program) run(e *emulator) {
	for pc := 0; pc < len(p.code); {
		in := &p.code[pc]
		in.ran = true
		pc++
		if in.jump == nil {
			in.run(e)
		} else if in.jump(e) {
			pc = in.to
		}
	}
}

// emulatedGroup makes a function of groupArgs, for products with weights of type t, out of a program.
func emulatedGroup(p *program, t Type) func(*groupArgs) {
	elems, bytes := t.Block()
	return func(a *groupArgs) {
		e := &emulator{}
		for i := range e.v { // what was there before must not matter
			for j := range e.v[i] {
				e.v[i][j] = 0x7fabcdef
			}
		}
		rec := t.Form().record()
		granted := *a
		put := func(field string, addr int64) {
			*(*int64)(unsafe.Add(unsafe.Pointer(&granted), argumentOffsets[field])) = addr
		}
		supers := (a.blocks*elems + 255) / 256
		put("w", e.grant(unsafe.Pointer(a.w), a.wNext*(a.groups-1)+a.blocks*bytes*groupRows))
		put("acts", e.grant(unsafe.Pointer(a.acts), a.next*(supers-1)+a.rows*rec))
		put("acc", e.grant(unsafe.Pointer(a.acc), a.groups*a.rows*groupRows*4))
		put("panel", e.grant(unsafe.Pointer(a.panel), panelBytes))
		e.integer[9] = e.grant(unsafe.Pointer(&granted), int(unsafe.Sizeof(granted)))
		p.run(e)
	}
}

// float lanes
func (v *vector) float(i int) float32       { return math.Float32frombits(v[i]) }
func (v *vector) setFloat(i int, f float32) { v[i] = math.Float32bits(f) }

// TestEmulatedAVX512 computes products by the text of the AVX-512 functions.
func TestEmulatedAVX512(t *testing.T) {
	programs, err := readPrograms("matmul_avx512_amd64.s")
	if err != nil {
		t.Fatal(err)
	}
	emulated := implementation{variant: AVX512, pairs: true}
	for typ, g := range geometries {
		if g.elems == 0 || g.form == Dense {
			continue
		}
		p := programs["group"+g.name+"AVX512"]
		if p == nil {
			t.Fatalf("no function for %s", g.name)
		}
		emulated.group[typ] = emulatedGroup(p, Type(typ))
	}
	before := active
	active = &emulated
	defer func() { active = before }()
	testMatMul(t)
	testMatMulSaturated(t)
	r := rand.New(rand.NewPCG(9, 9))
	for _, typ := range allTypes {
		if typ.Form() == Dense {
			continue
		}
		const outputs, most = 2*groupRows + 3, 2*fewRows + 1 // two groups and one
		cols := 512
		if typ.Form() == Q8x32 {
			cols = 288
		}
		w := testMatrix(r, typ, outputs, cols)
		x := testActivations(r, most, cols)
		for rows := 1; rows <= most; rows++ {
			dst := make([]float32, rows*outputs)
			MatMul(dst, outputs, &w, prepare(t, x[:rows*cols], rows, cols, typ.Form()), 0, outputs, new(Scratch))
			for i, got := range dst {
				if want := refDot(typ, w.row(i%outputs), x[i/outputs*cols:][:cols]); !sameFloat(got, want) {
					t.Fatalf("%v, row %d of %d, output %d: %x, want %x", typ, i/outputs, rows, i%outputs, got, want)
				}
			}
		}
	}
	for name, p := range programs {
		for i := range p.code {
			if !p.code[i].ran {
				t.Fatalf("instruction %d of %s was never run", i, name)
			}
		}
	}
}
