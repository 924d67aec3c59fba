package wire

// BundleRequest asks for a model's bundle: its manifest and the torrents'
// info dictionaries. Who holds the model answers with a Bundle, or a Refusal.
type BundleRequest struct{ Model [32]byte }

// Type implements Message.
func (*BundleRequest) Type() Type { return TypeBundleRequest }

func (m *BundleRequest) encode(e *Encoder) { e.Hash(m.Model) }
func (m *BundleRequest) decode(d *Decoder) { m.Model = d.Hash() }

// Bundle carries a bundle as artifacts encodes it; the receiver checks it
// against the model ID, so it doesn't matter who sent it.
type Bundle struct{ Data []byte }

// Type implements Message.
func (*Bundle) Type() Type { return TypeBundle }

func (m *Bundle) encode(e *Encoder) { e.Raw(m.Data) }
func (m *Bundle) decode(d *Decoder) { m.Data = d.Rest() }
