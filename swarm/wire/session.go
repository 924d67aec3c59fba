package wire

// Limits of a request for an answer.
const (
	MaxBias         = 4096 // tokens whose logits are changed
	MaxBreakers     = 64   // DRY sequence breakers
	MaxBreakerBytes = 40   // of each
	MaxLogprobs     = 20   // likeliest tokens told with each token
)

// Sampling holds a request's sampling settings (runtime.Sampling says what
// they mean).
type Sampling struct {
	Seed                                                 uint64
	Temperature, TemperatureRange, TemperatureExponent   float32
	TopK                                                 uint32
	TypicalP, TopP, MinP                                 float32
	XTCProbability, XTCThreshold                         float32
	PenaltyLastN                                         int32
	RepetitionPenalty, FrequencyPenalty, PresencePenalty float32
	DRYMultiplier, DRYBase                               float32
	DRYAllowedLength                                     uint32
	DRYLastN                                             int32
	DRYBreakers                                          []string // each decoder tokenizes them by the model's vocabulary
	Bias                                                 []TokenBias
}

// TokenBias changes a token's logit.
type TokenBias struct {
	ID   uint32
	Bias float32
}

func (s *Sampling) encode(e *Encoder) {
	e.U64(s.Seed)
	e.F32(s.Temperature)
	e.F32(s.TemperatureRange)
	e.F32(s.TemperatureExponent)
	e.U32(s.TopK)
	e.F32(s.TypicalP)
	e.F32(s.TopP)
	e.F32(s.MinP)
	e.F32(s.XTCProbability)
	e.F32(s.XTCThreshold)
	e.U32(uint32(s.PenaltyLastN))
	e.F32(s.RepetitionPenalty)
	e.F32(s.FrequencyPenalty)
	e.F32(s.PresencePenalty)
	e.F32(s.DRYMultiplier)
	e.F32(s.DRYBase)
	e.U32(s.DRYAllowedLength)
	e.U32(uint32(s.DRYLastN))
	e.U32(uint32(len(s.DRYBreakers)))
	for _, text := range s.DRYBreakers {
		e.String(text)
	}
	e.U32(uint32(len(s.Bias)))
	for _, b := range s.Bias {
		e.U32(b.ID)
		e.F32(b.Bias)
	}
}

func (s *Sampling) decode(d *Decoder) {
	s.Seed = d.U64()
	s.Temperature, s.TemperatureRange, s.TemperatureExponent = d.F32(), d.F32(), d.F32()
	s.TopK = d.U32()
	s.TypicalP, s.TopP, s.MinP = d.F32(), d.F32(), d.F32()
	s.XTCProbability, s.XTCThreshold = d.F32(), d.F32()
	s.PenaltyLastN = int32(d.U32())
	s.RepetitionPenalty, s.FrequencyPenalty, s.PresencePenalty = d.F32(), d.F32(), d.F32()
	s.DRYMultiplier, s.DRYBase = d.F32(), d.F32()
	s.DRYAllowedLength = d.U32()
	s.DRYLastN = int32(d.U32())
	for range d.Count(MaxBreakers, 2) {
		s.DRYBreakers = append(s.DRYBreakers, d.String(MaxBreakerBytes))
	}
	for range d.Count(MaxBias, 8) {
		s.Bias = append(s.Bias, TokenBias{d.U32(), d.F32()})
	}
}

// Route is the route that the client proposes; the decoder signs it, or a
// better-informed one, as its Plan.
type Route struct {
	Stages       []PlanStage // RangeRoot may be zero: the decoder fills it in
	DecoderFirst uint32
	Chunk        uint32 // tokens per chunk, at most
	LastChunk    uint32 // tokens of the prompt's last chunks, at most; from 1 to Chunk
	DecodeLocal  bool   // stages push KV and the decoder decodes alone
	PushKV       bool   // stages push KV even if not, where the decoder has room for it
}

// SessionOpen starts a session on its decoder.
type SessionOpen struct {
	Head
	Grant    Grant
	Route    Route
	Salt     [32]byte // the client's, the same in all its sessions, for prefix hashes
	Tokens   []int32  // the prompt
	MaxNew   uint32   // tokens to make at most; 0: the prompt is computed, and that is all
	Stop     []int32  // token IDs that end the answer (not sent)
	Sampling Sampling
	Fresh    bool   // begin with no cache of an earlier session, even where one begins alike
	Proof    bool   // account with hashes of logits, seams and KV
	Wait     uint32 // ms that the decoder may let the session wait for room; 0: it answers at once
	Logprobs uint32 // likeliest tokens to tell with each token; 0: not even the token's own log-probability
	Times    bool   // account with the times of chunks
	Guess    bool   // tokens may be guessed and verified together, which changes no token
	Grow     bool   // a decoder that lacks layers may get them meanwhile and go on alone, which changes no token either
	Probe    Probe  // of the prompt
	Former   string // the decoder that the session had before, if it leaves and may hand on its cache; else empty
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
	e.U32(m.Route.LastChunk)
	e.Bool(m.Route.DecodeLocal)
	e.Bool(m.Route.PushKV)
	e.Hash(m.Salt)
	encodeTokens(e, m.Tokens)
	e.U32(m.MaxNew)
	encodeTokens(e, m.Stop)
	m.Sampling.encode(e)
	e.Bool(m.Fresh)
	e.Bool(m.Proof)
	e.U32(m.Wait)
	e.U32(m.Logprobs)
	e.Bool(m.Times)
	e.Bool(m.Guess)
	e.Bool(m.Grow)
	m.Probe.encode(e)
	e.String(m.Former)
}

func (m *SessionOpen) decode(d *Decoder) {
	m.Head.decode(d)
	m.Grant.decode(d)
	for range d.Count(MaxStages, 42) {
		m.Route.Stages = append(m.Route.Stages, PlanStage{d.String(MaxPeerID), d.U32(), d.U32(), d.Hash()})
	}
	m.Route.DecoderFirst = d.U32()
	m.Route.Chunk = d.U32()
	m.Route.LastChunk = d.U32()
	m.Route.DecodeLocal = d.Bool()
	m.Route.PushKV = d.Bool()
	m.Salt = d.Hash()
	m.Tokens = decodeTokens(d)
	m.MaxNew = d.U32()
	m.Stop = decodeTokens(d)
	m.Sampling.decode(d)
	m.Fresh = d.Bool()
	m.Proof = d.Bool()
	m.Wait = d.U32()
	if m.Logprobs = d.U32(); m.Logprobs > MaxLogprobs {
		d.Fail("%d log-probabilities with each token, at most %d", m.Logprobs, MaxLogprobs)
	}
	m.Times = d.Bool()
	m.Guess = d.Bool()
	m.Grow = d.Bool()
	m.Probe.decode(d)
	m.Former = d.String(MaxPeerID)
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
	Logprob  float32   // of ID, if any were asked for
	Top      []Logprob // of the likeliest tokens, as many as were asked for
}

// Logprob is a token and the natural logarithm of its probability.
type Logprob struct {
	ID      int32
	Logprob float32
}

// Type implements Message.
func (*Token) Type() Type { return TypeToken }

func (m *Token) encode(e *Encoder) {
	m.Head.encode(e)
	e.U32(m.Position)
	e.U32(uint32(m.ID))
	e.F32(m.Logprob)
	e.U32(uint32(len(m.Top)))
	for _, p := range m.Top {
		e.U32(uint32(p.ID))
		e.F32(p.Logprob)
	}
}

func (m *Token) decode(d *Decoder) {
	m.Head.decode(d)
	m.Position = d.U32()
	m.ID = decodeToken(d)
	m.Logprob = d.F32()
	for range d.Count(MaxLogprobs, 8) {
		m.Top = append(m.Top, Logprob{decodeToken(d), d.F32()})
	}
}

func decodeToken(d *Decoder) int32 {
	id := int32(d.U32())
	if id < 0 {
		d.Fail("token ID %d", uint32(id))
	}
	return id
}

// Why an answer ended.
const (
	ReasonStop   = "stop"   // an end-of-turn or stop token
	ReasonLength = "length" // MaxNew tokens
	ReasonPrompt = "prompt" // no token was asked for
	ReasonCancel = "cancel" // the client wants no more
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
	HandoffNanos uint64 // the end of that, from the arrival of the last seam on; 0 without stages
	DecodeNanos  uint64 // from the first token to the last
	Prompt       uint32 // tokens
	Reused       uint32 // … of them found in the cache of an earlier session
	Generated    uint32 // tokens made
	Guessed      uint32 // tokens guessed and verified
	Accepted     uint32 // of them were right
	Switched     uint32 // position from which a decoder that had lacked layers computed alone; 0: it didn't
	SwitchNanos  uint64 // the longer of the times that the first two tokens after Switched took
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
	e.U64(s.HandoffNanos)
	e.U64(s.DecodeNanos)
	e.U32(s.Prompt)
	e.U32(s.Reused)
	e.U32(s.Generated)
	e.U32(s.Guessed)
	e.U32(s.Accepted)
	e.U32(s.Switched)
	e.U64(s.SwitchNanos)
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
	s.HandoffNanos = d.U64()
	s.DecodeNanos = d.U64()
	s.Prompt = d.U32()
	s.Reused = d.U32()
	s.Generated = d.U32()
	s.Guessed = d.U32()
	s.Accepted = d.U32()
	s.Switched = d.U32()
	s.SwitchNanos = d.U64()
	s.LogitsHash = d.Hash()
	s.KVHash = d.Hash()
	s.Decoder.decode(d)
	for range d.Count(MaxStages, 114) {
		var st StageStats
		st.decode(d)
		s.Stages = append(s.Stages, st)
	}
	for range d.Count(1024, 2) {
		s.Recovered = append(s.Recovered, d.String(MaxText))
	}
}

// Cancel says that the client wants no more of an answer: it ends where it is, with Done.
type Cancel struct{ Head }

// Type implements Message.
func (*Cancel) Type() Type { return TypeCancel }

func (m *Cancel) encode(e *Encoder) { m.Head.encode(e) }
func (m *Cancel) decode(d *Decoder) { m.Head.decode(d) }
