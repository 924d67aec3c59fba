package wire

// StageOpen asks a peer to run one stage of a plan: admission, KV reservation
// and the names of its predecessor and successor, before any chunk.
type StageOpen struct {
	Head
	Grant Grant
	Plan  Plan
	Index uint32 // which stage of Plan the receiver is
	Times bool   // account with the times of chunks
	Probe Probe  // whoever runs layer l gives the rows of boundary l; the decoder gives the others, and logits
	Marks []Mark // ascending: where the stage may begin, if it has the cache of these tokens
}

// Type implements Message.
func (*StageOpen) Type() Type { return TypeStageOpen }

func (m *StageOpen) encode(e *Encoder) {
	m.Head.encode(e)
	m.Grant.encode(e)
	m.Plan.encode(e)
	e.U32(m.Index)
	e.Bool(m.Times)
	m.Probe.encode(e)
	e.U32(uint32(len(m.Marks)))
	for _, k := range m.Marks {
		e.U32(k.Position)
		e.Hash(k.Prefix)
	}
}

func (m *StageOpen) decode(d *Decoder) {
	m.Head.decode(d)
	m.Grant.decode(d)
	m.Plan.decode(d)
	m.Index = d.U32()
	m.Times = d.Bool()
	m.Probe.decode(d)
	for range d.Count(MaxMarks, 36) {
		k := Mark{d.U32(), d.Hash()}
		if n := len(m.Marks); k.Position == 0 || n > 0 && k.Position <= m.Marks[n-1].Position {
			d.Fail("mark at position %d out of order", k.Position)
		}
		m.Marks = append(m.Marks, k)
	}
}

// Mark names the tokens before a position.
type Mark struct {
	Position uint32
	Prefix   Prefix
}

// StageOpened says that the stage holds its layers and has reserved its KV.
type StageOpened struct {
	Head
	Begins []uint32 // ascending: positions, of the opening's marks, up to which it has the cache; the first chunk begins at one of them, or at 0
}

// Type implements Message.
func (*StageOpened) Type() Type { return TypeStageOpened }

func (m *StageOpened) encode(e *Encoder) {
	m.Head.encode(e)
	e.U32(uint32(len(m.Begins)))
	for _, at := range m.Begins {
		e.U32(at)
	}
}

func (m *StageOpened) decode(d *Decoder) {
	m.Head.decode(d)
	for range d.Count(MaxMarks, 4) {
		m.Begins = append(m.Begins, d.U32())
	}
}

// Chunk announces consecutive tokens that travel the route together. Only the
// first stage gets their IDs; the others check that seams carry Prefix.
//
// Guesses may be wrong. Whether they were is known when the next frame of the
// decoder comes: a Chunk behind them (all were right), or a Rewind.
type Chunk struct {
	Head
	Start   uint32   // position of the first token
	Count   uint32   // tokens, at least 1
	Guessed uint32   // how many of the last ones are guesses; not all
	Held    bool     // the decoder has what it needs of these positions: it gets neither rows nor a seam
	Tails   bool     // where rows are pushed, so is what layers have beside them behind the last token; else it is left out
	Prefix  Prefix   // hash of all tokens before Start+Count
	Pages   []Prefix // the same at each multiple of PageRows within, ascending
	Tokens  []int32  // Count IDs for the first stage, otherwise none
}

// Type implements Message.
func (*Chunk) Type() Type { return TypeChunk }

func (m *Chunk) encode(e *Encoder) {
	m.Head.encode(e)
	e.U32(m.Start)
	e.U32(m.Count)
	e.U32(m.Guessed)
	e.Bool(m.Held)
	e.Bool(m.Tails)
	e.Hash(m.Prefix)
	e.U32(uint32(len(m.Pages)))
	for _, h := range m.Pages {
		e.Hash(h)
	}
	encodeTokens(e, m.Tokens)
}

func (m *Chunk) decode(d *Decoder) {
	m.Head.decode(d)
	m.Start = d.U32()
	m.Count = d.U32()
	m.Guessed = d.U32()
	m.Held = d.Bool()
	m.Tails = d.Bool()
	m.Prefix = d.Hash()
	for range d.Count(MaxTokens/PageRows+1, 32) {
		m.Pages = append(m.Pages, d.Hash())
	}
	m.Tokens = decodeTokens(d)
	switch {
	case m.Count == 0 || m.Count > MaxTokens || m.Guessed >= m.Count || len(m.Tokens) > 0 && len(m.Tokens) != int(m.Count):
		d.Fail("chunk of %d tokens, %d of them guesses, with %d IDs", m.Count, m.Guessed, len(m.Tokens))
	case len(m.Pages) != int(pagesWithin(m.Start, m.Count)):
		d.Fail("chunk of %d tokens from %d on with %d hashes of pages", m.Count, m.Start, len(m.Pages))
	}
}

// pagesWithin returns how many multiples of PageRows lie within [start, start+n), but for start.
func pagesWithin(start, n uint32) uint64 {
	return (uint64(start)+uint64(n)-1)/PageRows - uint64(start)/PageRows
}

// Rewind says that guesses were wrong: everything from position Upto on, which
// lies in the latest chunk, is forgotten. The next chunk begins there.
type Rewind struct {
	Head
	Upto   uint32
	Prefix Prefix // hash of all tokens before Upto
}

// Type implements Message.
func (*Rewind) Type() Type { return TypeRewind }

func (m *Rewind) encode(e *Encoder) {
	m.Head.encode(e)
	e.U32(m.Upto)
	e.Hash(m.Prefix)
}

func (m *Rewind) decode(d *Decoder) {
	m.Head.decode(d)
	m.Upto = d.U32()
	m.Prefix = d.Hash()
}

func encodeTokens(e *Encoder, tokens []int32) {
	e.U32(uint32(len(tokens)))
	for _, t := range tokens {
		e.U32(uint32(t))
	}
}

func decodeTokens(d *Decoder) []int32 {
	n := d.Count(MaxTokens, 4)
	if n == 0 {
		return nil
	}
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = decodeToken(d)
	}
	return tokens
}

// Seam carries the residual stream between two layers for one chunk: Count rows
// in the type that the grant's Numerics have for Cut, f32 where they have none.
type Seam struct {
	Head
	Cut    uint32 // the layer that reads it
	Start  uint32
	Count  uint32
	Prefix Prefix // as announced with the chunk
	Rows   []byte
}

// Type implements Message.
func (*Seam) Type() Type { return TypeSeam }

func (m *Seam) encode(e *Encoder) {
	m.Head.encode(e)
	e.U32(m.Cut)
	e.U32(m.Start)
	e.U32(m.Count)
	e.Hash(m.Prefix)
	e.Raw(m.Rows)
}

func (m *Seam) decode(d *Decoder) {
	m.Head.decode(d)
	m.Cut = d.U32()
	m.Start = d.U32()
	m.Count = d.U32()
	m.Prefix = d.Hash()
	m.Rows = d.Rest()
	if m.Count == 0 || m.Count > MaxTokens || len(m.Rows)%int(m.Count) != 0 {
		d.Fail("seam of %d rows in %d bytes", m.Count, len(m.Rows))
	}
}

// SeamCredit tells the sender of seams that everything before Upto has been
// taken up, so that it may send as many more.
type SeamCredit struct {
	Head
	Upto uint32
}

// Type implements Message.
func (*SeamCredit) Type() Type { return TypeSeamCredit }

func (m *SeamCredit) encode(e *Encoder) { m.Head.encode(e); e.U32(m.Upto) }
func (m *SeamCredit) decode(d *Decoder) { m.Head.decode(d); m.Upto = d.U32() }

// Progress says how many positions have been computed; between chunks it
// keeps a slow stage from being taken for dead.
type Progress struct {
	Head
	Upto uint32
}

// Type implements Message.
func (*Progress) Type() Type { return TypeProgress }

func (m *Progress) encode(e *Encoder) { m.Head.encode(e); e.U32(m.Upto) }
func (m *Progress) decode(d *Decoder) { m.Head.decode(d); m.Upto = d.U32() }

// StageClose ends a stage: its KV is freed at once, after the account that
// Proof asks for.
type StageClose struct {
	Head
	Proof bool // the account has the layers' KV digests
}

// Type implements Message.
func (*StageClose) Type() Type { return TypeStageClose }

func (m *StageClose) encode(e *Encoder) { m.Head.encode(e); e.Bool(m.Proof) }
func (m *StageClose) decode(d *Decoder) { m.Head.decode(d); m.Proof = d.Bool() }

// StageClosed is a stage's account of the session.
type StageClosed struct {
	Head
	Stats StageStats
}

// StageStats is what one stage did in one session.
type StageStats struct {
	Peer         string     `json:"peer"`
	First        uint32     `json:"first"`
	Last         uint32     `json:"last"`
	Tokens       uint64     `json:"tokens"`
	Chunks       uint64     `json:"chunks"`
	ComputeNanos uint64     `json:"compute_ns"`
	InputNanos   uint64     `json:"wait_input_ns"`  // it waited for the next chunk or its seam
	CreditNanos  uint64     `json:"wait_credit_ns"` // for its successor to take up its seams
	RowsNanos    uint64     `json:"wait_rows_ns"`   // for the decoder to acknowledge its rows; the decoder itself: for rows
	SeamBytes    uint64     `json:"seam_bytes"`
	KVBytes      uint64     `json:"kv_bytes"`
	SeamHash     [32]byte   `json:"-"` // over every seam row sent, in order
	KVDigests    [][32]byte `json:"-"` // per layer, of its canonical rows

	Times []ChunkTimes `json:"-"` // at most MaxTimes, if asked for
}

// ChunkTimes says when things happened to one chunk on one stage, in
// nanoseconds; 0 where they didn't. A stage's count from when it was opened, in
// Done all count from when the first chunk went out, on the decoder's clock.
type ChunkTimes struct {
	Start    uint32
	Count    uint32
	Ready    uint64 // the input is here
	Began    uint64 // computing
	Ended    uint64
	Pushed   uint64 // the rows have been written
	Imported uint64 // the decoder holds them
}

// chunkTimesBytes is what one takes on the wire.
const chunkTimesBytes = 2*4 + 5*8

// Type implements Message.
func (*StageClosed) Type() Type { return TypeStageClosed }

func (m *StageClosed) encode(e *Encoder) { m.Head.encode(e); m.Stats.encode(e) }
func (m *StageClosed) decode(d *Decoder) { m.Head.decode(d); m.Stats.decode(d) }

func (s *StageStats) encode(e *Encoder) {
	e.String(s.Peer)
	e.U32(s.First)
	e.U32(s.Last)
	e.U64(s.Tokens)
	e.U64(s.Chunks)
	e.U64(s.ComputeNanos)
	e.U64(s.InputNanos)
	e.U64(s.CreditNanos)
	e.U64(s.RowsNanos)
	e.U64(s.SeamBytes)
	e.U64(s.KVBytes)
	e.Hash(s.SeamHash)
	e.U32(uint32(len(s.KVDigests)))
	for _, h := range s.KVDigests {
		e.Hash(h)
	}
	e.U32(uint32(len(s.Times)))
	for _, t := range s.Times {
		e.U32(t.Start)
		e.U32(t.Count)
		for _, ns := range []uint64{t.Ready, t.Began, t.Ended, t.Pushed, t.Imported} {
			e.U64(ns)
		}
	}
}

func (s *StageStats) decode(d *Decoder) {
	s.Peer = d.String(MaxPeerID)
	s.First = d.U32()
	s.Last = d.U32()
	s.Tokens = d.U64()
	s.Chunks = d.U64()
	s.ComputeNanos = d.U64()
	s.InputNanos = d.U64()
	s.CreditNanos = d.U64()
	s.RowsNanos = d.U64()
	s.SeamBytes = d.U64()
	s.KVBytes = d.U64()
	s.SeamHash = d.Hash()
	for range d.Count(1<<16, 32) {
		s.KVDigests = append(s.KVDigests, d.Hash())
	}
	for range d.Count(MaxTimes, chunkTimesBytes) {
		s.Times = append(s.Times, ChunkTimes{d.U32(), d.U32(), d.U64(), d.U64(), d.U64(), d.U64(), d.U64()})
	}
}

// Ping asks for a Pong with the same number; it also keeps alive the listed
// sessions' leases. Pong lists the sessions that its sender still holds.
type Ping struct {
	Nonce    uint64
	Sessions []SessionID
}

// Type implements Message.
func (*Ping) Type() Type { return TypePing }

func (m *Ping) encode(e *Encoder) { e.U64(m.Nonce); encodeSessions(e, m.Sessions) }
func (m *Ping) decode(d *Decoder) { m.Nonce = d.U64(); m.Sessions = decodeSessions(d) }

// Pong answers a Ping.
type Pong struct {
	Nonce    uint64
	Sessions []SessionID
}

// Type implements Message.
func (*Pong) Type() Type { return TypePong }

func (m *Pong) encode(e *Encoder) { e.U64(m.Nonce); encodeSessions(e, m.Sessions) }
func (m *Pong) decode(d *Decoder) { m.Nonce = d.U64(); m.Sessions = decodeSessions(d) }

func encodeSessions(e *Encoder, ids []SessionID) {
	e.U32(uint32(len(ids)))
	for _, id := range ids {
		e.Raw(id[:])
	}
}

func decodeSessions(d *Decoder) (ids []SessionID) {
	for range d.Count(1<<14, 16) {
		ids = append(ids, SessionID(d.take(16)))
	}
	return ids
}
