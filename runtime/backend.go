package runtime

import (
	"context"
	"fmt"
	"slices"

	"github.com/starling-swarm/starling/kernels"
	"github.com/starling-swarm/starling/runtime/tokenizer"
)

// Backend opens layer ranges of models. It is the boundary behind which other engines can come: Engine is the Go one,
// runtimetest.Fake the second.
type Backend interface {
	// Open loads o.Layers of the model at o.Path. It fails rather than load something it cannot compute exactly.
	Open(o Options) (Executor, error)
}

// Options say what to open and within which means.
type Options struct {
	// Path names a GGUF file, or any part of a split set. A sparse file that holds just the header, the tokenizer and
	// the tensors of Layers is fine.
	Path string
	// Layers is the range to load; the zero Range means all. {n, n} with n the model's layer count loads the head alone.
	Layers Range
	// KV is the type of cache rows where a sequence is made for no other. It is part of the numerics profile.
	KV KVType
	// Threads is how many threads compute; 0 means GOMAXPROCS. DecodeThreads is how many do where a Run has few rows, as
	// in decoding, which is bound by memory; 0 means as many as Threads. Neither changes a bit of any result. Leave two
	// processors for the network: GOMAXPROCS ≥ Threads + 2 on a machine that also serves.
	Threads, DecodeThreads int
	// Yield leaves processors to other programs that are busy (on Linux; elsewhere it does nothing): while they use n of
	// the machine's, at most all but n threads compute, and always one.
	Yield bool
	// Pack says whether weights are copied into the layout that is fastest to read; the zero value is PackAuto.
	Pack Packing
	// MaxKVBytes bounds the sum of all reservations of KV memory; 0 means half of the memory that is available once the
	// weights are where they are used from (2 GiB where the system does not say), or a fifth where the model exceeds it.
	MaxKVBytes int64
	// MaxMemory bounds packed weights, weights of the file that stay in memory, and reservations of KV memory together; what is
	// left beside them is for buffers, layers that are grown into, and whatever else the process does. The shares are those of a
	// machine with so much free. 0 means what the machine has.
	MaxMemory int64
}

// KVType is the number format of cache rows.
type KVType uint8

const (
	KVF16 KVType = iota // IEEE half precision, clamped to ±65504: the default
	KVF32               // IEEE single precision, for comparison with float32 references
	KVQ8                // halves of which rows in blocks of 8 bits lose nothing (kernels.RoundQ8_0): half the bytes to send, the same memory
)

var kvTypes = []kernels.Type{KVF16: kernels.F16, KVF32: kernels.F32, KVQ8: kernels.Q8_0}

var kvNames = []string{KVF16: "f16", KVF32: "f32", KVQ8: "q8_0"}

// Bytes is the size of a head's key or value of n elements in a canonical row.
func (t KVType) Bytes(n int) int { return kernels.NarrowBytes(kvTypes[t], n) }

// size returns the bytes of one element in memory.
func (t KVType) size() int {
	if t == KVF32 {
		return 4
	}
	return 2
}

// String returns "f16", "f32" or "q8_0".
func (t KVType) String() string {
	if int(t) < len(kvNames) {
		return kvNames[t]
	}
	return fmt.Sprintf("KVType(%d)", uint8(t))
}

// KVTypes lists all.
func KVTypes() []KVType { return []KVType{KVF16, KVF32, KVQ8} }

// ParseKVType is the inverse of String.
func ParseKVType(name string) (KVType, error) {
	if i := slices.Index(kvNames, name); i >= 0 {
		return KVType(i), nil
	}
	return 0, fmt.Errorf("KV type %q is not known: use f16 or q8_0", name)
}

// Executor is a loaded layer range. All methods are safe for concurrent use.
type Executor interface {
	// Config describes the whole model, not only the loaded range.
	Config() Config
	// Layers is the loaded range, with the zero Range of Options resolved. It changes with Grow alone.
	Layers() Range
	// CanGrow returns why the weights of `to` do not fit in memory beside all that sequences may reserve, nil where they do; their
	// tensors need not be there. As a stream from the disk they would make everything slow.
	CanGrow(to Range) error
	// Grow loads further layers, whose tensors the file has by now, while Runs go on: Layers becomes `to`, which covers it. An
	// error changes nothing: CanGrow's, damaged weights (*WeightError), ctx's, ErrClosed.
	Grow(ctx context.Context, to Range) error
	// Profile is what another executor must share before numbers may pass between the two: that of NewSequence's sequences.
	Profile() Profile
	// Computes returns nil if a sequence can be made for a profile, else a *ProfileError.
	Computes(p Profile) error
	// Tokenizer is the model's own; never nil.
	Tokenizer() *tokenizer.Tokenizer
	// NewSequence reserves KV memory for `capacity` positions (≥ 1) of every layer of layers, rounded up to whole pages
	// of 256 positions, or for LayerCache.Positions where those are fewer, and returns an empty sequence. Layers that are not
	// loaded may be among them: their rows come by ImportKV. An empty range reserves nothing and is for the head alone. Memory
	// is touched as rows arrive. Errors: *LayerError when the model lacks some of layers, *CapacityError when the
	// reservation does not fit (try again after another sequence was closed), *ContextError when capacity exceeds the
	// model's context.
	NewSequence(capacity int, layers Range) (Sequence, error)
	// NewSequenceFor is NewSequence for a session whose profile may be another one; further errors are those of Computes.
	NewSequenceFor(p Profile, capacity int, layers Range) (Sequence, error)
	// Memory is what the weights take.
	Memory() Memory
	// FreeKVBytes is what can still be reserved.
	FreeKVBytes() int64
	// Run performs the steps together: rows of several steps share each weight matrix's pass, and every result is the
	// same as if the steps had run alone. Concurrent calls are serialised in no promised order. Each sequence may appear
	// in one step only. On error no sequence changed its length and the steps' results are undefined. ctx is checked
	// while waiting and between layers.
	// Errors: *StepError (a step that makes no sense: a bug of the caller, or of the peer it speaks for),
	// *LayerError (layers for which the sequence reserved nothing), *PositionError, *FullError, *NonFiniteError, ctx's
	// error, ErrClosed.
	Run(ctx context.Context, steps []*Step) error
	// Close frees the model. It waits for a Run and a Grow in progress; afterwards every method that computes or reserves gives
	// ErrClosed. Idempotent. Sequences need not be closed before.
	Close() error
}

// Sequence is the KV cache of one conversation for the layers that NewSequence was given. Methods may be called from
// any goroutine, also while a Run uses the sequence: rows below Len never change, so ExportKV, Digest and Len do not
// wait for it, nor does ImportKV into a layer that the Run does not touch. Truncate, Close, and ImportKV into a layer
// that is running wait for the Run's end. Any other layer is a *LayerError, or 0 for Len and RowBytes.
type Sequence interface {
	// Len is the number of rows held for that layer.
	Len(layer int) int
	// Capacity is the number of positions reserved for each layer.
	Capacity() int
	// Profile is how it is computed, and in which type rows are stored.
	Profile() Profile
	// Truncate drops the rows at positions ≥ n in all layers; layers that hold fewer stay as they are. A layer with a tail can
	// go back only to where it was before its last Run or import, to its Snapshots, and to 0, one with a window as far as rows are left:
	// the position to which everything went is returned, the largest ≤ n that all layers can.
	Truncate(n int) int
	// Reach is the position that Truncate(n) would go to.
	Reach(n int) int
	// Fork returns a new sequence of that capacity which holds the first positions of this one, in all layers: n of them, or fewer where
	// some layer holds fewer or cannot go back to n (see Truncate); ask Len. Full pages are shared, and count once in what is reserved;
	// neither sequence sees what the other does from then on. Errors: *CapacityError, *ContextError, *FullError when n exceeds the capacity,
	// ErrClosed.
	Fork(n, capacity int) (Sequence, error)
	// RowBytes is the size of one position's canonical row: the K vector of every KV head, ascending, then the V vector
	// of every KV head (none of a latent cache, where V is part of K), each of the layer's LayerCache, in the KV type,
	// little endian; of KVQ8 each head's vector in blocks of its own.
	RowBytes(layer int) int
	// TailBytes is the size of the layer's tail in canonical form: LayerCache.State values, float32, little endian; 0 where
	// there is none. A gated delta net's are the last inputs of its convolution, oldest position first, and then the matrix of
	// each value head, ascending, a row for each element of the key.
	TailBytes(layer int) int
	// KVBytes is how many bytes ExportKV gives.
	KVBytes(layer, first, last int) int
	// ExportKV appends the canonical rows of positions [first, last) of a layer to dst, of one with a window those that a row at
	// last sees, and then the layer's tail at position last.
	// Needs last ≤ Len(layer) (else *PositionError), and of a layer with a tail or a window that last is where its last Run or import
	// began or ended or a snapshot is (else *TailError; of a window other positions may be had, too).
	ExportKV(dst []byte, layer, first, last int) ([]byte, error)
	// ImportKV appends what ExportKV gave of the n positions from `first` on to a layer, as if it had been computed here.
	// Errors: *PositionError when first ≠ Len(layer), *FullError beyond the capacity, *NonFiniteError for a NaN or infinity, a
	// plain error for a broken length. An error changes nothing. data is not kept.
	ImportKV(layer, first, n int, data []byte) error
	// Digest is the BLAKE3-256 hash of what ExportKV gives of positions [0, Len(layer)).
	Digest(layer int) [32]byte
	// Close frees the reservation. Idempotent. A closed sequence holds no rows.
	Close()
}
