package kernels

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"
)

// An emulator executes the text of generated AVX-512 functions, so that their steps are tested on every machine. It knows
// the instructions that they use, no others, and every access to memory must be within what the arguments grant. That
// the assembler encodes each as written is for runs on real processors to show.

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
	args    int64 // the parameter: address of the arguments
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

// argumentOffsets has the offsets of arguments, as "groupArgs_rows", and constants that the text names.
var argumentOffsets = func() map[string]int64 {
	offsets := map[string]int64{"const_attnStride": attnStride, "Span__size": int64(unsafe.Sizeof(Span{}))}
	for _, t := range []reflect.Type{
		reflect.TypeFor[groupArgs](), reflect.TypeFor[denseArgs](), reflect.TypeFor[attnProductArgs](), reflect.TypeFor[attnSoftmaxArgs](), reflect.TypeFor[Span](),
	} {
		for i := range t.NumField() {
			offsets[t.Name()+"_"+t.Field(i).Name] = int64(t.Field(i).Offset)
		}
	}
	return offsets
}()

var (
	dataLine   = regexp.MustCompile(`^DATA (\w+)<>\+(\d+)\(SB\)/8, \$0x([0-9a-f]+)$`)
	textLine   = regexp.MustCompile(`^TEXT ·(\w+)\(SB\)`)
	labelLine  = regexp.MustCompile(`^(\w+):$`)
	memoryForm = regexp.MustCompile(`^(-?\w*)\((\w+)\)(?:\((\w+)\*(\d)\))?$`)
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
	case "JGE":
		return func(e *emulator) bool { return e.compare >= 0 }
	case "JEQ":
		return func(e *emulator) bool { return e.compare == 0 }
	case "JNE":
		return func(e *emulator) bool { return e.compare != 0 }
	}
	return nil
}

// run executes the program.
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

// call runs the program with args, a pointer to its arguments, whose pointers may be used for as many bytes as granted
// says. What it writes to the arguments themselves is lost.
func call[T any](p *program, args *T, granted map[string]int) {
	e := &emulator{}
	for i := range e.v { // what was there before must not matter
		for j := range e.v[i] {
			e.v[i][j] = 0x7fabcdef
		}
	}
	own := *args
	name := reflect.TypeFor[T]().Name() + "_"
	for field, n := range granted {
		at := argumentOffsets[name+field]
		addr := e.grant(*(*unsafe.Pointer)(unsafe.Add(unsafe.Pointer(args), at)), n)
		*(*int64)(unsafe.Add(unsafe.Pointer(&own), at)) = addr
	}
	e.args = e.grant(unsafe.Pointer(&own), int(unsafe.Sizeof(own)))
	p.run(e)
}

// emulatedGroup makes a function of groupArgs, for products with weights of type t, out of a program.
func emulatedGroup(p *program, t Type) func(*groupArgs) {
	elems, bytes := t.geometry().elems, t.packedBlock()
	return func(a *groupArgs) {
		call(p, a, map[string]int{
			"w":      a.wNext*(a.groups-1) + a.blocks*bytes*groupRows,
			"acts":   a.next*((a.blocks*elems+255)/256-1) + a.rows*t.Form().record(),
			"acc":    a.groups * a.rows * groupRows * 4,
			"panel":  panelBytes,
			"values": 16,
		})
	}
}

// float lanes
func (v *vector) float(i int) float32       { return math.Float32frombits(v[i]) }
func (v *vector) setFloat(i int, f float32) { v[i] = math.Float32bits(f) }

// emulatedDense makes the parts of dense products out of programs.
func emulatedDense(programs map[string]*program) (k denseKernels) {
	product := func(name string, t Type) func(*denseArgs) {
		_, size := t.Block()
		return func(a *denseArgs) {
			call(programs[name], a, map[string]int{
				"w":   (denseGroup-1)*a.wStride + a.cols*size,
				"a":   (a.rows-1)*a.aStride + 4*a.cols,
				"acc": a.rows * denseGroup * 64,
			})
		}
	}
	for _, t := range []Type{F32, F16, BF16} {
		k.native[t] = product("dense"+t.String()+"AVX512", t)
	}
	k.panel = product("densePanelAVX512", F32)
	k.fold = func(dst *float32, stride int, acc *float32, rows int) {
		for r, group := range unsafe.Slice((*[denseGroup]lanes)(unsafe.Pointer(acc)), rows) {
			to := unsafe.Slice((*float32)(unsafe.Add(unsafe.Pointer(dst), r*stride)), denseGroup)
			for i := range group {
				to[i] = group[i].fold()
			}
		}
	}
	return k
}

// narrowProduct computes an attnProduct of lanes in eights, which these functions leave to others, of stored values of
// size bytes; keep makes it attnFirst.
func narrowProduct(a *attnProductArgs, rows, size int, keep bool) {
	for lane := range a.lanes {
		b := unsafe.Add(a.b, lane/KVTile*a.bNext+lane%KVTile*size)
		column := make([]float32, a.n)
		for j := range column {
			p := unsafe.Add(b, j*a.bStride)
			if size == 2 {
				column[j] = F16ToF32(*(*uint16)(p))
			} else {
				column[j] = *(*float32)(p)
			}
			if keep {
				*(*float32)(unsafe.Add(unsafe.Pointer(a.panel), 4*(KVTile*j+lane))) = column[j]
			}
		}
		for r := range rows {
			acc := float32(0)
			for j, x := range column {
				acc = FMA(*(*float32)(unsafe.Add(unsafe.Pointer(a.a), r*a.aStride+4*j)), x, acc)
			}
			*(*float32)(unsafe.Add(unsafe.Pointer(a.dst), r*a.dstStride+4*lane)) = acc + 0
		}
	}
}

// emulatedAttention makes attention's functions out of programs.
func emulatedAttention(programs map[string]*program) (k attnKernels) {
	for format, name := range []string{attnHalf: "F16AVX512", attnFull: "F32AVX512"} {
		product := func(p *program, first bool, size int) func(*attnProductArgs) {
			return func(a *attnProductArgs) {
				rows, lanes := a.rows, a.lanes
				if lanes%16 != 0 {
					if first {
						rows = attnStep
					}
					narrowProduct(a, rows, size, first)
					return
				}
				granted := map[string]int{}
				if first {
					rows, lanes = attnStep, KVTile
					granted["panel"] = 4 * KVTile * a.n
				}
				granted["dst"] = (rows-1)*a.dstStride + 4*lanes
				granted["a"] = (rows-1)*a.aStride + 4*a.n
				granted["b"] = (lanes/16-1)*a.bNext + (a.n-1)*a.bStride + KVTile*size
				if rows > 0 {
					call(p, a, granted)
				}
			}
		}
		k.attnProduct[format] = product(programs["attnProduct"+name], false, 2+2*format)
		k.attnFirst[format] = product(programs["attnFirst"+name], true, 2+2*format)
	}
	k.attnSoftmax = func(a *attnSoftmaxArgs) {
		call(programs["attnSoftmaxAVX512"], a, map[string]int{
			"s": 4 * (attnStride*(a.rows-1) + AttnBlock), "visible": a.rows * int(unsafe.Sizeof(Span{})), "m": 4 * a.rows, "l": 4 * a.rows,
		})
	}
	return k
}

// TestEmulatedAVX512 computes products and attention by the text of the AVX-512 functions.
func TestEmulatedAVX512(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("not run here: every amd64 machine runs it, and the text that it reads is the same on all")
	}
	programs, err := readPrograms("matmul_avx512_amd64.s")
	if err != nil {
		t.Fatal(err)
	}
	dense, err := readPrograms("dense_avx512_amd64.s")
	if err != nil {
		t.Fatal(err)
	}
	emulated := implementation{variant: AVX512, pairs: true}
	emulated.dense = emulatedDense(dense)
	emulated.quantise = [Q8x256 + 1]rowQuantiser{Q8x32: recordsGo(Q8x32), Q8x256: recordsGo(Q8x256)}
	for typ, g := range geometries {
		if g.elems == 0 || g.form == Dense {
			continue
		}
		name := g.name
		switch Type(typ) {
		case IQ2_XXS, IQ2_XS, IQ2_S:
			name = "Grid7"
		case IQ3_XXS, IQ3_S, IQ1_S, IQ1_M:
			name = "Grid6"
		}
		p := programs["group"+name+"AVX512"]
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
		const outputs, most = 2*groupRows + 3, 2*fewRows + 2 // two groups and one
		cols := map[Form]int{Dense: 116, Q8x32: 288, Q8x256: 512}[typ.Form()]
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
	attention, err := readPrograms("attention_avx512_amd64.s")
	if err != nil {
		t.Fatal(err)
	}
	emulated.attnKernels = emulatedAttention(attention)
	testAttendRows(t)
	for rows := range 9 {
		const n, dim = 109, 112 // seven tiles: of four, two and one
		for _, full := range []bool{false, true} {
			c := newCache(n, dim, full, normal(r, n*dim), normal(r, n*dim))
			c.check(t, normal(r, rows*dim), slices.Repeat([]Span{{0, n}}, rows), 0.1, new(AttnScratch))
		}
	}
	testAttendVisible(t)
	testAttendExtremes(t)
	maps.Copy(programs, attention)
	maps.Copy(programs, dense)
	for name, p := range programs {
		for i := range p.code {
			if !p.code[i].ran {
				t.Fatalf("instruction %d of %s was never run", i, name)
			}
		}
	}
}
