package kernels

// panelBytes is the scratch memory of one unpacked superblock of 16 rows; kernels/_asm says what is where.
const panelBytes = 6144

// groupArgs tells an assembly kernel to multiply one group of 16 packed rows by all rows of activations.
type groupArgs struct {
	w      *byte    // packed blocks, ascending
	acts   *byte    // records of the first superblock
	next   int      // bytes from the records of a superblock to the next's
	blocks int      // blocks of the weight type in w
	rows   int      // rows of activations
	acc    *float32 // [rows][16]: in, the sums so far; out, with these blocks
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

// passGroups is how many groups of rows meet the same activations before the next superblock of those is read: several
// rows of activations don't fit the L2 cache as a whole.
const passGroups = 4

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
	s.block = aligned(s.block, groupRows*perSuper*bytes)
	s.acc = sized(s.acc, passGroups*a.rows*groupRows)
	s.args = groupArgs{next: a.rows * rec, rows: a.rows, panel: &s.panel[0]}
	args := &s.args
	for g0 := first / groupRows; g0*groupRows < last; g0 += passGroups {
		g1 := min(g0+passGroups, (last+groupRows-1)/groupRows)
		clear(s.acc[:(g1-g0)*a.rows*groupRows])
		// One row: the whole group at once from the packed copy.
		step := 1
		if w.packed != nil && a.rows <= 8 {
			step = supers
		}
		for sb := 0; sb < supers; sb += step {
			args.acts = &a.records[sb*args.next]
			args.blocks = min(step*perSuper, total-sb*perSuper)
			for g := g0; g < g1; g++ {
				if w.packed != nil {
					args.w = &w.packed[(g*total+sb*perSuper)*groupRows*bytes]
				} else {
					w.packBlocks(s.block, g, sb*perSuper, args.blocks, &s.pack)
					args.w = &s.block[0]
				}
				args.acc = &s.acc[(g-g0)*a.rows*groupRows]
				kernel(args)
			}
		}
		for g := g0; g < g1; g++ {
			o, o1 := max(first, g*groupRows), min(last, (g+1)*groupRows)
			acc := s.acc[(g-g0)*a.rows*groupRows:][:a.rows*groupRows]
			for r := range a.rows {
				copy(dst[r*stride+o:r*stride+o1], acc[r*groupRows+o-g*groupRows:])
			}
		}
	}
}
