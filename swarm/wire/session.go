package wire

// Sampling holds a request's sampling settings (runtime.Sampling says what
// they mean).
type Sampling struct {
	Seed        uint64
	Temperature float32
	TopP        float32
	MinP        float32
	TopK        uint32
}

// Route is the route that the client proposes; the decoder signs it, or a
// better-informed one, as its Plan.
type Route struct {
	Stages       []PlanStage // RangeRoot may be zero: the decoder fills it in
	DecoderFirst uint32
	Chunk        uint32 // tokens per chunk
	DecodeLocal  bool   // stages push KV and the decoder decodes alone
}

// SessionOpen starts a session on its decoder.
type SessionOpen struct {
	Head
	Grant    Grant
	Route    Route
	Salt     [32]byte // the client's, for prefix hashes
	Tokens   []int32  // the prompt
	MaxNew   uint32   // tokens to make at most
	Stop     []int32  // token IDs that end the answer (not sent)
	Sampling Sampling
	Proof    bool // account with hashes of logits, seams and KV
}

// Type implements Message.
func (*SessionOpen) Type() Type { return TypeSessionOpen }

func (m *SessionOpen) encode(e *Encoder) {
	m.Head.encode(e)
	m.Grant.encode(e)
	e.U32(uint32(len(m.Route.Stages)))
	for _, s := range m.Route.Stages {
		e.String(s.Peer)
		e.U32(s.First)
		e.U32(s.Last)
		e.Hash(s.RangeRoot)
	}
	e.U32(m.Route.DecoderFirst)
	e.U32(m.Route.Chunk)
	e.Bool(m.Route.DecodeLocal)
	e.Hash(m.Salt)
	encodeTokens(e, m.Tokens)
	e.U32(m.MaxNew)
	encodeTokens(e, m.Stop)
	e.U64(m.Sampling.Seed)
	e.F32(m.Sampling.Temperature)
	e.F32(m.Sampling.TopP)
	e.F32(m.Sampling.MinP)
	e.U32(m.Sampling.TopK)
	e.Bool(m.Proof)
}

func (m *SessionOpen) decode(d *Decoder) {
	m.Head.decode(d)
	m.Grant.decode(d)
	for range d.Count(MaxStages, 42) {
		m.Route.Stages = append(m.Route.Stages, PlanStage{d.String(MaxPeerID), d.U32(), d.U32(), d.Hash()})
	}
	m.Route.DecoderFirst = d.U32()
	m.Route.Chunk = d.U32()
	m.Route.DecodeLocal = d.Bool()
	m.Salt = d.Hash()
	m.Tokens = decodeTokens(d)
	m.MaxNew = d.U32()
	m.Stop = decodeTokens(d)
	m.Sampling = Sampling{d.U64(), d.F32(), d.F32(), d.F32(), d.U32()}
	m.Proof = d.Bool()
}

// SessionOpened says that the decoder and every stage have reserved their KV.
type SessionOpened struct{ Head }

// Type implements Message.
func (*SessionOpened) Type() Type { return TypeSessionOpened }

func (m *SessionOpened) encode(e *Encoder) { m.Head.encode(e) }
func (m *SessionOpened) decode(d *Decoder) { m.Head.decode(d) }

// Token is one sampled token.
type Token struct {
	Head
	Position uint32
	ID       int32
}

// Type implements Message.
func (*Token) Type() Type { return TypeToken }

func (m *Token) encode(e *Encoder) { m.Head.encode(e); e.U32(m.Position); e.U32(uint32(m.ID)) }
func (m *Token) decode(d *Decoder) {
	m.Head.decode(d)
	m.Position = d.U32()
	if m.ID = int32(d.U32()); m.ID < 0 {
		d.Fail("token ID %d", uint32(m.ID))
	}
}

// Why an answer ended.
const (
	ReasonStop   = "stop"   // an end-of-turn or stop token
	ReasonLength = "length" // MaxNew tokens
)

// Done ends a session with its account.
type Done struct {
	Head
	Reason string
	Stats  SessionStats
}

// SessionStats is the decoder's account of a session. Times are nanoseconds.
type SessionStats struct {
	Epoch        Epoch
	PrefillNanos uint64 // from the first chunk to the first token
	DecodeNanos  uint64 // from the first token to the last
	Prompt       uint32 // tokens prefilled
	Generated    uint32 // tokens made
	LogitsHash   [32]byte
	KVHash       [32]byte // over all layers' digests, ascending
	Decoder      StageStats
	Stages       []StageStats
	Recovered    []string // what failed on the way and what was done
}

// Type implements Message.
func (*Done) Type() Type { return TypeDone }

func (m *Done) encode(e *Encoder) {
	m.Head.encode(e)
	e.String(m.Reason)
	s := &m.Stats
	e.U32(s.Epoch.Client)
	e.U32(s.Epoch.Plan)
	e.U64(s.PrefillNanos)
	e.U64(s.DecodeNanos)
	e.U32(s.Prompt)
	e.U32(s.Generated)
	e.Hash(s.LogitsHash)
	e.Hash(s.KVHash)
	s.Decoder.encode(e)
	e.U32(uint32(len(s.Stages)))
	for i := range s.Stages {
		s.Stages[i].encode(e)
	}
	e.U32(uint32(len(s.Recovered)))
	for _, r := range s.Recovered {
		e.String(cut(r, MaxText))
	}
}

func (m *Done) decode(d *Decoder) {
	m.Head.decode(d)
	m.Reason = d.String(64)
	s := &m.Stats
	s.Epoch = Epoch{d.U32(), d.U32()}
	s.PrefillNanos = d.U64()
	s.DecodeNanos = d.U64()
	s.Prompt = d.U32()
	s.Generated = d.U32()
	s.LogitsHash = d.Hash()
	s.KVHash = d.Hash()
	s.Decoder.decode(d)
	for range d.Count(MaxStages, 86) {
		var st StageStats
		st.decode(d)
		s.Stages = append(s.Stages, st)
	}
	for range d.Count(1024, 2) {
		s.Recovered = append(s.Recovered, d.String(MaxText))
	}
}

// Cancel ends a session that the client no longer wants.
type Cancel struct{ Head }

// Type implements Message.
func (*Cancel) Type() Type { return TypeCancel }

func (m *Cancel) encode(e *Encoder) { m.Head.encode(e) }
func (m *Cancel) decode(d *Decoder) { m.Head.decode(d) }
