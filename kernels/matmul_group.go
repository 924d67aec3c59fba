package kernels

import "unsafe"

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
	ahead  int      // what to fetch: the memory that many bytes after the blocks being multiplied, which may be anywhere
	values *int8    // what codes of grid types stand for, [16]; their blocks in w are gridBlocks
	acc    *float32 // [groups][rows][16]: in, the sums so far; out, with these blocks
	panel  *byte    // panelBytes, at a multiple of 64
}

// Scratch is one worker's memory for [MatMul]. The zero value is ready; it grows as needed, and may be used for any
// sequence of products, one at a time.
type Scratch struct {
	args  groupArgs
	pack  packScratch
	store storeArgs
	panel []byte
	block []byte
	acc   []float32
	dense denseScratch
}

// A pass multiplies passGroups groups of weight rows by passRows rows of activations, superblock by superblock: its sums
// and one superblock of its activations fit a core's L2 cache of 512 KiB, and codes that were unpacked once serve enough
// rows. Up to fewRows rows are multiplied straight from packed blocks, see kernels/_asm.
const (
	passGroups = 4
	passRows   = 128
	fewRows    = 8
	fewGroups  = 16 // of a pass of few rows by packed weights: what is done once a pass would show if done for each group
)

// packedAhead is how far ahead of use packed weights are fetched, in bytes: enough for memory's latency at its speed.
const packedAhead = 8192

// matMulGroups is MatMul by assembly kernels. Without a packed copy, the groups of a pass are packed to scratch memory,
// once for all rows of activations.
func matMulGroups(dst []float32, stride int, w *Matrix, a *Activations, first, last int, s *Scratch) {
	elems, bytes := w.Type.geometry().elems, w.Type.packedBlock()
	perSuper := 256 / elems
	total := w.Cols / elems
	supers := superblocks(w.Cols)
	groupBytes := total * groupRows * bytes
	rec := a.form.record()
	kernel := active.group[w.Type]
	groups, step := passGroups, 1 // of a pass; superblocks of a call
	few := a.rows <= fewRows
	switch {
	case few && w.packed != nil:
		groups, step = fewGroups, supers // there is nothing to reuse: a group is one run of memory
	case few:
		groups, step = 1, supers
	}
	if s.panel == nil {
		s.panel = aligned(nil, panelBytes)
	}
	if w.packed == nil {
		s.block = aligned(s.block, groups*groupBytes)
	}
	s.acc = sized(s.acc, groups*min(a.rows, passRows)*groupRows)
	s.args = groupArgs{next: a.rows * rec, wNext: groupBytes, panel: &s.panel[0], ahead: packedAhead, values: &gridTypes[w.Type].values[0]}
	args := &s.args
	atOnce := 1
	if active.pairs && !few {
		atOnce = 2
	}
	for g0 := first / groupRows; g0*groupRows < last; g0 += groups {
		n := min(groups, (last+groupRows-1)/groupRows-g0)
		blocks := s.block
		if w.packed != nil {
			blocks = w.packed[g0*groupBytes:]
		} else {
			for g := range n {
				w.packBlocks(blocks[g*groupBytes:], g0+g, 0, total, &s.pack)
			}
			if groups == 1 { // the rows to pack next, while these are multiplied
				here := groupRows * w.rowBytes()
				args.ahead = int(uintptr(unsafe.Pointer(&w.Data[g0*here])) + uintptr(here) - uintptr(unsafe.Pointer(&blocks[0])))
			}
		}
		for r0 := 0; r0 < a.rows; r0 += passRows {
			rows := min(passRows, a.rows-r0)
			acc := s.acc[:n*rows*groupRows]
			clear(acc)
			args.rows = rows
			for sb := 0; sb < supers; sb += step {
				args.acts = &a.records[sb*args.next+r0*rec]
				args.blocks = min(step*perSuper, total-sb*perSuper)
				for g := 0; g < n; g += atOnce {
					args.groups = min(atOnce, n-g)
					args.w = &blocks[g*groupBytes+sb*perSuper*groupRows*bytes]
					args.acc = &acc[g*rows*groupRows]
					kernel(args)
				}
			}
			s.storePass(dst[r0*stride:], stride, acc, g0*groupRows, first, last, n)
		}
	}
}

// storeArgs tells an assembly kernel to copy the sums of whole groups to the outputs.
type storeArgs struct {
	acc    *float32 // [groups][rows][16]
	dst    *float32 // [rows], stride apart: groups×16 outputs
	stride int      // bytes
	rows   int
	groups int
}

// storePass copies the sums acc, [groups][rows][16], of the outputs from o on to dst, but only outputs [first, last).
func (s *Scratch) storePass(dst []float32, stride int, acc []float32, o, first, last, groups int) {
	rows := len(acc) / (groups * groupRows)
	if active.store != nil && o >= first && o+groups*groupRows <= last {
		s.store = storeArgs{&acc[0], &dst[o], 4 * stride, rows, groups}
		active.store(&s.store)
		return
	}
	for r := range rows {
		for g := range groups {
			o := o + g*groupRows
			lo, hi := max(first, o), min(last, o+groupRows)
			copy(dst[r*stride+lo:r*stride+hi], acc[(g*rows+r)*groupRows+lo-o:])
		}
	}
}
