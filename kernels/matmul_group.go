package kernels

// panelBytes is the scratch memory of one unpacked superblock of two groups; kernels/_asm says what is where.
const panelBytes = 2 * 6656

// groupArgs tells an assembly kernel to multiply one or two groups of 16 packed rows by all rows of activations.
type groupArgs struct {
	w      *byte    // packed blocks, ascending
	wNext  int      // bytes from the first group's blocks to the second's
	groups int      // 1; or 2, which only kernels of an implementation with pairs get
	acts   *byte    // records of the first superblock
	next   int      // bytes from the records of a superblock to the next's
	blocks int      // blocks of the weight type in w
	rows   int      // rows of activations
	acc    *float32 // [groups][rows][16]: in, the sums so far; out, with these blocks
	panel  *byte    // panelBytes, at a multiple of 64
}

// Scratch is one worker's memory for [MatMul]. The zero value is ready; it grows as needed, and may be used for any
// sequence of products, one at a time.
type Scratch struct {
	args  groupArgs
	pack  packArgs
	panel []byte
	block []byte
	acc   []float32
}

// A pass multiplies passGroups groups of weight rows by passRows rows of activations, superblock by superblock: its sums
// and one superblock of its activations fit a core's L2 cache of 512 KiB, and codes that were unpacked once serve enough
// rows. Up to fewRows rows are multiplied straight from packed blocks, see kernels/_asm.
const (
	passGroups = 4
	passRows   = 128
	fewRows    = 8
)

// matMulGroups is MatMul by assembly kernels.
func matMulGroups(dst []float32, stride int, w *Matrix, a *Activations, first, last int, s *Scratch) {
	elems, bytes := w.Type.Block()
	perSuper := 256 / elems
	total := w.Cols / elems
	supers := superblocks(w.Cols)
	rec := a.form.record()
	kernel := active.group[w.Type]
	if s.panel == nil {
		s.panel = aligned(nil, panelBytes)
	}
	blockBytes := groupRows * perSuper * bytes
	s.block = aligned(s.block, 2*blockBytes)
	s.acc = sized(s.acc, passGroups*min(a.rows, passRows)*groupRows)
	s.args = groupArgs{next: a.rows * rec, panel: &s.panel[0]}
	args := &s.args
	for g0 := first / groupRows; g0*groupRows < last; g0 += passGroups {
		g1 := min(g0+passGroups, (last+groupRows-1)/groupRows)
		for r0 := 0; r0 < a.rows; r0 += passRows {
			rows := min(passRows, a.rows-r0)
			size := rows * groupRows
			clear(s.acc[:(g1-g0)*size])
			args.rows = rows
			step := 1
			if w.packed != nil && rows <= fewRows {
				step = supers // nothing to reuse: a group is one run of memory
			}
			atOnce := 1
			if active.pairs && rows > fewRows {
				atOnce = 2
			}
			for sb := 0; sb < supers; sb += step {
				args.acts = &a.records[sb*args.next+r0*rec]
				args.blocks = min(step*perSuper, total-sb*perSuper)
				for g := g0; g < g1; g += atOnce {
					args.groups = min(atOnce, g1-g)
					if w.packed != nil {
						args.w, args.wNext = &w.packed[(g*total+sb*perSuper)*groupRows*bytes], total*groupRows*bytes
					} else {
						for i := range args.groups {
							w.packBlocks(s.block[i*blockBytes:], g+i, sb*perSuper, args.blocks, &s.pack)
						}
						args.w, args.wNext = &s.block[0], blockBytes
					}
					args.acc = &s.acc[(g-g0)*size]
					kernel(args)
				}
			}
			for g := g0; g < g1; g++ {
				o, o1 := max(first, g*groupRows), min(last, (g+1)*groupRows)
				acc := s.acc[(g-g0)*size:][:size]
				for r := range rows {
					copy(dst[(r0+r)*stride+o:(r0+r)*stride+o1], acc[r*groupRows+o-g*groupRows:])
				}
			}
		}
	}
}
