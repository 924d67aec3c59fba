package artifacts

import (
	"crypto/sha256"
	"math/bits"
)

// LeafSize is the bytes under one leaf of the Merkle tree (BEP 52).
const LeafSize = 16 << 10

// MaxPieceLength bounds the bytes that are verified together.
const MaxPieceLength = 16 << 20

// PieceLength returns the bytes in each piece of a file (the last piece may be shorter): the power
// of two at or below fileSize/2048, at least 16 KiB and at most 16 MiB. It depends on nothing else,
// so that identical files have identical pieces everywhere.
func PieceLength(fileSize int64) int64 {
	n := fileSize / 2048
	if n <= LeafSize {
		return LeafSize
	}
	return min(int64(1)<<(bits.Len64(uint64(n))-1), MaxPieceLength)
}

// pieceCount returns how many pieces a file of size bytes has.
func pieceCount(size int64) int64 {
	n := PieceLength(size)
	return size/n + min(size%n, 1)
}

// treeHash hashes one piece: SHA-256 over each leaf of 16 KiB, then pairwise up. A short piece is
// filled up with zero hashes (not hashes of zeros) to leaves leaves, a power of two.
func treeHash(data []byte, leaves int) [32]byte {
	level := make([][32]byte, 0, leaves)
	for len(data) > 0 {
		n := min(len(data), LeafSize)
		level = append(level, sha256.Sum256(data[:n]))
		data = data[n:]
	}
	return foldTree(level, leaves, [32]byte{})
}

// pieceHash hashes a piece of a file of size bytes. The only piece of a file is its whole tree, and
// that has one leaf, since a file of one piece has at most 16 KiB.
func pieceHash(data []byte, size int64) [32]byte {
	return treeHash(data, int(PieceLength(size)/LeafSize))
}

// rootOf returns the Merkle root of a file of size bytes whose pieces hash to pieces.
func rootOf(pieces [][32]byte, size int64) [32]byte {
	pad := treeHash(nil, int(PieceLength(size)/LeafSize))
	level := append([][32]byte(nil), pieces...)
	return foldTree(level, ceilPow2(len(pieces)), pad)
}

// foldTree reduces a level that stands for width hashes, a power of two, to its root. The missing
// hashes at its end are pad. level is overwritten.
func foldTree(level [][32]byte, width int, pad [32]byte) [32]byte {
	var pair [64]byte
	for ; width > 1; width /= 2 {
		for i := 0; i < len(level); i += 2 {
			right := pad
			if i+1 < len(level) {
				right = level[i+1]
			}
			copy(pair[:32], level[i][:])
			copy(pair[32:], right[:])
			level[i/2] = sha256.Sum256(pair[:])
		}
		level = level[:(len(level)+1)/2]
		copy(pair[:32], pad[:])
		copy(pair[32:], pad[:])
		pad = sha256.Sum256(pair[:])
	}
	if len(level) == 0 {
		return pad
	}
	return level[0]
}

// ceilPow2 returns the least power of two that is at least n.
func ceilPow2(n int) int {
	if n <= 1 {
		return 1
	}
	return 1 << bits.Len(uint(n-1))
}
