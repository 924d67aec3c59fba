// Package gguf reads and writes the headers of GGUF model files.
//
// # The format
//
// A file is a magic, a version, two counts, the metadata (key and typed value), the tensor table
// and, from the next multiple of the alignment on, the tensors' bytes; everything is little endian:
//
//	"GGUF"  u32 version  u64 n_tensors  u64 n_kv
//	n_kv      × string key, u32 kind, value
//	n_tensors × string name, u32 n_dims, n_dims × u64 dim, u32 type, u64 offset
//	padding to general.alignment (32 when absent), then the data; offsets count from here
//
// A string is a u64 length and that many bytes. An array value is a u32 element kind, a u64 count
// and the elements.
//
// # Use
//
// [OpenSet] opens a model: one file, or all parts of a split one, whichever of them is named. [Open]
// and [Read] read one file. All read headers only; a tensor's bytes are found by [Tensor.Part],
// [Tensor.Offset] and [Tensor.Size] and are never touched here. [Set.Refuse] tells a language model
// from the other things that come as GGUF. [Writer] makes files for tests and tools.
//
// # What is accepted
//
//   - Versions 2 and 3, whose layouts are the same, little endian.
//   - Files with no metadata, with no tensors (vocabularies), or with neither.
//   - Every current ggml type, whether or not Starling has a kernel for it.
//   - Tensors in any order and with gaps between their data (llama.cpp wants neither), and a last
//     tensor without padding.
//   - Any string bytes, UTF-8 or not; a bool byte other than 0 counts as true.
//   - LoRA adapters, multimodal projectors and importance matrices: they parse, and Refuse names
//     them.
//   - Split sets as gguf-split makes them, with or without tensors in the first part.
//
// # What is refused
//
// The file is foreign: no length in it is believed before that many bytes are known to be there, so
// a hostile header costs no more memory than a few times its own bytes, and no time worth the name.
// Each refusal is one line that names the file, the field and its byte offset ([Error]), and says
// what to do where something can be done:
//
//   - Not GGUF at all; the usual mistakes (web page, git-lfs pointer, PyTorch or pre-GGUF file) are
//     named.
//   - Version 1, versions after 3, and big-endian files.
//   - Counts, lengths and arrays that the rest of the file cannot hold or that pass the limits
//     ([MaxHeader] and the constants after it); numbers that are negative when read as signed.
//   - Empty or repeated keys and tensor names, names of 64 bytes or more, unknown kinds, arrays of
//     arrays.
//   - A general.alignment that is not a uint32 power of two up to [MaxAlignment].
//   - Types that ggml has withdrawn or only ik_llama.cpp has, by name, and unknown ones.
//   - More than four dimensions, a dimension of 0 (llama.cpp takes these), a row that is not a
//     whole number of blocks, element or byte counts that overflow.
//   - Tensor data that are unaligned, reach past the end of the file, or overlap.
//   - Sets with a missing, renamed or foreign part, or with a tensor in two parts.
//
// Whether the metadata make sense for an architecture or a tokenizer is for those who use them; the
// accessors ([File.Uint] and the others) only ever return a value of the kind asked for.
package gguf
