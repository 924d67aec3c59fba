package wire

// Domains separate the things that a peer's key signs.
const (
	DomainGrant = "starling/grant/2"
	DomainPlan  = "starling/plan/1"
)

// maxSignature bounds a signature; Ed25519 needs 64.
const maxSignature = 96

// Grant is the client's signed permission for one session (DESIGN §2): the
// decoder may plan and re-plan under it, but never exceed it.
type Grant struct {
	Session     SessionID
	Model       [32]byte
	Client      string // who signs
	Decoder     string // who may drive the session
	ClientEpoch uint32 // which decoder of this session, counted by the client
	Trust       string // trust class that stages must have: "any", "members"
	Budget      uint32 // positions: prompt and new tokens together
	Numerics    Numerics
	Expires     uint64 // Unix seconds; nodes allow 10 minutes of clock skew
	Signature   []byte // by Client over SigningBytes, domain DomainGrant
}

// Numerics is what a client chooses of its session's numerics profile: how everybody rounds, in prefill and in decoding,
// whoever runs which layers. Types have the numbers of runtime.KVType and runtime.SeamType.
type Numerics struct {
	KV   uint8    // of cache rows
	Seam uint8    // of the residual stream before the layers of Cuts
	Cuts []uint32 // ascending; none where Seam is 0, f32
}

func (n *Numerics) encode(e *Encoder) {
	e.U8(n.KV)
	e.U8(n.Seam)
	e.U32(uint32(len(n.Cuts)))
	for _, c := range n.Cuts {
		e.U32(c)
	}
}

func (n *Numerics) decode(d *Decoder) {
	n.KV = d.U8()
	n.Seam = d.U8()
	last := uint32(0)
	for range d.Count(MaxStages, 4) {
		c := d.U32()
		if c <= last {
			d.Fail("seams are rounded before layer %d, behind layer %d", c, last)
		}
		last, n.Cuts = c, append(n.Cuts, c)
	}
	if (n.Seam == 0) != (len(n.Cuts) == 0) {
		d.Fail("seams of type %d at %d cuts", n.Seam, len(n.Cuts))
	}
}

// SigningBytes returns what the signature covers.
func (g *Grant) SigningBytes() []byte {
	e := NewEncoder(nil)
	g.fields(e)
	return e.Data()
}

func (g *Grant) fields(e *Encoder) {
	e.Raw(g.Session[:])
	e.Hash(g.Model)
	e.String(g.Client)
	e.String(g.Decoder)
	e.U32(g.ClientEpoch)
	e.String(g.Trust)
	e.U32(g.Budget)
	g.Numerics.encode(e)
	e.U64(g.Expires)
}

func (g *Grant) encode(e *Encoder) {
	g.fields(e)
	e.Bytes(g.Signature)
}

func (g *Grant) decode(d *Decoder) {
	copy(g.Session[:], d.take(16))
	g.Model = d.Hash()
	g.Client = d.String(MaxPeerID)
	g.Decoder = d.String(MaxPeerID)
	g.ClientEpoch = d.U32()
	g.Trust = d.String(64)
	g.Budget = d.U32()
	g.Numerics.decode(d)
	g.Expires = d.U64()
	g.Signature = d.Bytes(maxSignature)
}

// PlanStage is one hop of a plan: Peer runs layers [First, Last).
type PlanStage struct {
	Peer        string
	First, Last uint32
	RangeRoot   [32]byte // hash over the piece hashes of these layers' bytes
}

// Plan is what the decoder signs once per epoch: who runs which layers and
// who may therefore send what to whom.
type Plan struct {
	Head
	Model        [32]byte
	Profile      [32]byte // numerics profile of every peer in the plan: the grant's Numerics, by one version of the rules
	Decoder      string   // who signs
	Stages       []PlanStage
	DecoderFirst uint32 // the decoder runs [DecoderFirst, Layers) in prefill
	Layers       uint32 // of the whole model
	Capacity     uint32 // positions to reserve KV for
	Known        uint32 // of these, the first ones whose tokens are known already: the prompt's, or all so far
	Window       uint32 // chunks that may be announced and not yet finished
	PushKV       bool   // stages send their KV rows to the decoder
	Signature    []byte // by Decoder over SigningBytes, domain DomainPlan
}

// SigningBytes returns what the signature covers.
func (p *Plan) SigningBytes() []byte {
	e := NewEncoder(nil)
	p.fields(e)
	return e.Data()
}

func (p *Plan) fields(e *Encoder) {
	p.Head.encode(e)
	e.Hash(p.Model)
	e.Hash(p.Profile)
	e.String(p.Decoder)
	e.U32(uint32(len(p.Stages)))
	for _, s := range p.Stages {
		e.String(s.Peer)
		e.U32(s.First)
		e.U32(s.Last)
		e.Hash(s.RangeRoot)
	}
	e.U32(p.DecoderFirst)
	e.U32(p.Layers)
	e.U32(p.Capacity)
	e.U32(p.Known)
	e.U32(p.Window)
	e.Bool(p.PushKV)
}

func (p *Plan) encode(e *Encoder) {
	p.fields(e)
	e.Bytes(p.Signature)
}

func (p *Plan) decode(d *Decoder) {
	p.Head.decode(d)
	p.Model = d.Hash()
	p.Profile = d.Hash()
	p.Decoder = d.String(MaxPeerID)
	n := d.Count(MaxStages, 42)
	for range n {
		p.Stages = append(p.Stages, PlanStage{d.String(MaxPeerID), d.U32(), d.U32(), d.Hash()})
	}
	p.DecoderFirst = d.U32()
	p.Layers = d.U32()
	p.Capacity = d.U32()
	p.Known = d.U32()
	p.Window = d.U32()
	p.PushKV = d.Bool()
	p.Signature = d.Bytes(maxSignature)
}

// Check reports whether the plan is a route: at least one stage, contiguous
// non-empty layer ranges from layer 0 to DecoderFirst, a decoder range that
// ends at Layers (it may be empty: the head alone), and no peer twice.
func (p *Plan) Check() error {
	at := uint32(0)
	seen := map[string]bool{p.Decoder: true}
	for i, s := range p.Stages {
		if s.First != at || s.Last <= s.First || s.Peer == "" {
			return Refuse(CodeBadGrant, "stage %d of the plan runs layers [%d,%d) after layer %d", i, s.First, s.Last, at)
		}
		if seen[s.Peer] {
			return Refuse(CodeBadGrant, "stage %d of the plan is a peer that has another part in it already", i)
		}
		at, seen[s.Peer] = s.Last, true
	}
	if len(p.Stages) == 0 || at != p.DecoderFirst || p.DecoderFirst > p.Layers || p.Layers > 1<<16 {
		return Refuse(CodeBadGrant, "the plan's stages end at layer %d, its decoder starts at %d of %d", at, p.DecoderFirst, p.Layers)
	}
	if p.Window == 0 || p.Window > MaxWindow || p.Capacity == 0 || p.Known > p.Capacity {
		return Refuse(CodeBadGrant, "plan with window %d and capacity %d, %d of it known", p.Window, p.Capacity, p.Known)
	}
	return nil
}
