package artifacts

import (
	"context"
	"errors"

	"github.com/anacrolix/torrent/metainfo"
	"github.com/anacrolix/torrent/storage"
)

// partStorage lets the library read and write one part of a model in the store, until pieces of it are released.
type partStorage struct {
	m          *Model
	generation int
	part       int
}

// OpenTorrent implements storage.ClientImpl.
func (s partStorage) OpenTorrent(context.Context, *metainfo.Info, metainfo.Hash) (storage.TorrentImpl, error) {
	length := PieceLength(s.m.bundle.Manifest.Parts[s.part].Size)
	return storage.TorrentImpl{Piece: func(p metainfo.Piece) storage.PieceImpl {
		return pieceStorage{m: s.m, generation: s.generation, part: s.part, piece: p.Index(), offset: int64(p.Index()) * length}
	}}, nil
}

// pieceStorage is one piece. The library writes chunks, reads the piece back and hashes it by the
// SHA-256 tree, and only then calls MarkComplete.
type pieceStorage struct {
	m           *Model
	generation  int
	part, piece int
	offset      int64
}

func (p pieceStorage) ReadAt(b []byte, off int64) (int, error) {
	n, err := p.m.readAt(p.part, b, p.offset+off)
	if p.m.generationNow() != p.generation { // the bytes may have gone while they were read
		return 0, errReleased
	}
	return n, err
}

func (p pieceStorage) WriteAt(b []byte, off int64) (int, error) {
	return p.m.writeAt(p.generation, p.part, p.piece, b, p.offset+off)
}

func (p pieceStorage) MarkComplete() error { return p.m.markVerified(p.generation, p.part, p.piece) }

// MarkNotComplete has nothing to undo: only a piece that is not recorded is ever hashed.
func (p pieceStorage) MarkNotComplete() error { return nil }

func (p pieceStorage) Completion() storage.Completion {
	return storage.Completion{Ok: true, Complete: p.m.hasPiece(p.part, p.piece)}
}

// noStorage refuses a torrent that brought no storage of its own.
type noStorage struct{}

// OpenTorrent implements storage.ClientImpl.
func (noStorage) OpenTorrent(context.Context, *metainfo.Info, metainfo.Hash) (storage.TorrentImpl, error) {
	return storage.TorrentImpl{}, errors.New("no model of the store")
}
