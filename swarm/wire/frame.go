package wire

import (
	"encoding/binary"
	"fmt"
	"io"
)

// Type says what a frame's body is. Numbers are never reused.
type Type uint8

// The frame types; the protocol that carries each is in docs/protocol.md.
const (
	TypeStageOpen   Type = 1  // decoder → stage: grant, plan
	TypeStageOpened Type = 2  // stage → decoder
	TypeChunk       Type = 3  // decoder → stage: what comes next
	TypeSeam        Type = 4  // stage → next stage or decoder
	TypeSeamCredit  Type = 5  // receiver of seams → their sender
	TypeStageClose  Type = 6  // decoder → stage
	TypeStageClosed Type = 7  // stage → decoder: its account
	TypeProgress    Type = 8  // stage → decoder, decoder → client
	TypeRefusal     Type = 9  // any → any: typed refusal
	TypePing        Type = 10 // keeps a link and its sessions alive
	TypePong        Type = 11
	TypeRewind      Type = 12 // decoder → stage: guesses were wrong
	TypeRows        Type = 13 // stage → decoder, decoder → client: what a probe asks for
	TypeHandover    Type = 14 // decoder → stage, decoder that leaves → its session's next one: rows follow that the receiver has not computed
	TypeInherit     Type = 15 // decoder → the one that its session had before

	TypeKVSlice Type = 20 // stage → decoder: part of a layer's new rows; decoder → stage: of what it is handed
	TypeKVAck   Type = 21 // the answer

	TypeSessionOpen   Type = 40 // client → decoder
	TypeSessionOpened Type = 41 // decoder → client
	TypeToken         Type = 42 // decoder → client
	TypeDone          Type = 43 // decoder → client
	TypeCancel        Type = 44 // client → decoder

	TypeBundleRequest Type = 60 // anyone → holder
	TypeBundle        Type = 61

	// 80–99 belong to offers and membership (offer.go, member.go).
)

// Limits in bytes of a frame's body, checked before it is allocated.
const (
	MaxControl = 1 << 20  // messages without bulk data
	MaxTokens  = 1 << 20  // tokens in one message
	MaxSeam    = 64 << 20 // a chunk's hidden states
	MaxSlice   = 64 << 10 // payload of one KV slice (DESIGN §3.4)
	MaxBundle  = 64 << 20 // manifest and torrent information of one model
	MaxStages  = 256      // stages in a plan
	MaxWindow  = 64       // chunks announced and not yet finished
	MaxPeerID  = 128      // text form of a peer ID
	PageRows   = 256      // positions of a KV page, whose tokens a hash names
	HandRows   = 1024     // positions that are handed to a stage, and acknowledged, together
	MaxEnds    = 64       // marks of an opening that are no page's
	MaxMarks   = MaxTokens/PageRows + MaxEnds
	MaxText    = 1024     // text of an error
	MaxTimes   = 512      // chunks whose times a stage accounts for
	MaxProbe   = 64 << 20 // rows of all boundaries and positions that a session is asked for

	MaxProbeLayers = 1024 // boundaries of a probe

	maxDone     = 8 << 20 // the accounts of all stages, with times
	headerBytes = 5

	// FrameHead is how many bytes of a frame name its type and its session.
	FrameHead = headerBytes + len(SessionID{})

	// MaxSeamRows is what is left of a Seam for its rows: a head, three
	// numbers and a hash go before them.
	MaxSeamRows = MaxSeam - (16 + 2*4) - 3*4 - 32
)

// limit returns the largest body that a frame of type t may have.
func (t Type) limit() int {
	switch t {
	case TypeSeam, TypeRows:
		return MaxSeam
	case TypeKVSlice:
		return MaxSlice + 256
	case TypeChunk, TypeSessionOpen:
		return 4*MaxTokens + MaxControl
	case TypeBundle:
		return MaxBundle
	case TypeDone:
		return maxDone
	default:
		return MaxControl
	}
}

// Message is a frame's body.
type Message interface {
	// Type returns the frame type that carries the message.
	Type() Type
	encode(*Encoder)
	decode(*Decoder)
}

// Append appends m as one frame to buf.
func Append(buf []byte, m Message) []byte {
	start := len(buf)
	e := NewEncoder(append(buf, 0, 0, 0, 0, byte(m.Type())))
	m.encode(e)
	buf = e.Data()
	binary.LittleEndian.PutUint32(buf[start:], uint32(len(buf)-start-4))
	return buf
}

// WriteFrame writes m in one Write call.
func WriteFrame(w io.Writer, m Message) error {
	_, err := w.Write(Append(nil, m))
	return err
}

// ReadFrame reads one frame and returns its type and body. The body is freshly
// allocated and belongs to the caller; a [Budget] is asked first. An unknown type, or a length beyond the
// type's limit, is an error before anything is allocated. Deadlines are the
// caller's: set one on r before each call. At a clean end of stream the error
// is io.EOF.
func ReadFrame(r io.Reader) (Type, []byte, error) {
	var h [headerBytes]byte
	if _, err := io.ReadFull(r, h[:4]); err != nil {
		return 0, nil, err
	}
	if _, err := io.ReadFull(r, h[4:]); err != nil {
		return 0, nil, noEOF(err)
	}
	n, t := int64(binary.LittleEndian.Uint32(h[:4]))-1, Type(h[4])
	if n < 0 {
		return 0, nil, fmt.Errorf("%w: empty frame", ErrFormat)
	}
	if newMessage(t) == nil {
		return 0, nil, fmt.Errorf("%w: unknown frame type %d", ErrFormat, t)
	}
	if n > int64(t.limit()) {
		return 0, nil, fmt.Errorf("%w: frame of type %d claims %d bytes, limit %d", ErrFormat, t, n, t.limit())
	}
	body, err := readBody(r, int(n))
	return t, body, err
}

// RowsFor returns the session whose seams, KV or probe rows a frame brings that begins with b; zeros for other frames, and while b is shorter than
// [FrameHead].
func RowsFor(b []byte) (id SessionID) {
	if len(b) < FrameHead {
		return id
	}
	switch Type(b[headerBytes-1]) {
	case TypeSeam, TypeRows, TypeKVSlice:
		copy(id[:], b[headerBytes:])
	}
	return id
}

// Budget is a reader that bounds the memory of frames that have come in part:
// a peer might never send the rest. Reserve returns an error if there is no room
// for so many bytes more; what it has granted, Release gives back.
type Budget interface {
	Reserve(bytes int) error
	Release(bytes int)
}

// smallBody is what a body may have that no budget is asked for.
const smallBody = 4 << 10

// readBody allocates as bytes arrive, so that a peer that claims a large frame
// and sends nothing costs little.
func readBody(r io.Reader, n int) ([]byte, error) {
	const step = 256 << 10
	reserve := func(int) error { return nil }
	if b, ok := r.(Budget); ok && n > smallBody {
		held := 0
		defer func() { b.Release(held) }() // a whole frame is its receiver's
		reserve = func(size int) error {
			if err := b.Reserve(size - held); err != nil {
				return fmt.Errorf("room for a frame of %d bytes: %w", n, err)
			}
			held = size
			return nil
		}
	}
	if err := reserve(min(n, step)); err != nil {
		return nil, err
	}
	body := make([]byte, min(n, step))
	got := 0
	for {
		m, err := io.ReadFull(r, body[got:])
		got += m
		if err != nil {
			return nil, noEOF(err)
		}
		if got == n {
			return body, nil
		}
		if err := reserve(min(n, 2*got)); err != nil {
			return nil, err
		}
		grown := make([]byte, min(n, 2*got))
		copy(grown, body)
		body = grown
	}
}

func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Read reads one frame and decodes it. Byte slices in the message alias a
// buffer that nothing else uses.
func Read(r io.Reader) (Message, error) {
	t, body, err := ReadFrame(r)
	if err != nil {
		return nil, err
	}
	return Decode(t, body)
}

// Decode decodes the body of a frame of type t. Byte slices in the result
// alias body.
func Decode(t Type, body []byte) (Message, error) {
	m := newMessage(t)
	if m == nil {
		return nil, fmt.Errorf("%w: unknown frame type %d", ErrFormat, t)
	}
	d := NewDecoder(body)
	m.decode(d)
	if err := d.Done(); err != nil {
		return nil, fmt.Errorf("frame type %d: %w", t, err)
	}
	return m, nil
}
