// Package gguf reads and writes the headers of GGUF model files.
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
// [Open] reads one file, [OpenSet] a model that may be split over several. Both read headers only;
// the bytes of a tensor are found by [Tensor.Offset] and [Tensor.Size], and are never touched here.
package gguf
