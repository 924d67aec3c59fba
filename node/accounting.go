package node

import (
	"github.com/starling-swarm/starling/swarm/wire"
	"lukechampine.com/blake3"
)

// onClosed takes a stage's account.
func (d *decoding) onClosed(from string, m *wire.StageClosed) ([]action, *wire.Refusal) {
	owed, ok := d.closing[from]
	if !ok || m.Session != d.head.Session || m.Epoch != owed.epoch {
		return nil, wire.Refuse(wire.CodeWrongPeer, "no account of epoch %v is expected from this peer", m.Epoch)
	}
	if m.Epoch == d.head.Epoch && !d.released {
		return nil, wire.Refuse(wire.CodeBadFrame, "the stage has not been closed")
	}
	st := m.Stats
	if st.First != owed.first || st.Last != owed.last || len(st.KVDigests) > 0 && len(st.KVDigests) != int(st.Last-st.First) {
		return nil, wire.Refuse(wire.CodeBadFrame, "account of layers [%d,%d) with %d digests, the plan says [%d,%d)",
			st.First, st.Last, len(st.KVDigests), owed.first, owed.last)
	}
	delete(d.closing, from)
	if m.Epoch == d.head.Epoch { // an older plan's rows may be fewer
		copy(d.digests[st.First:], st.KVDigests)
	}
	st.Peer, st.KVDigests = from, nil
	if len(d.stats.Stages) < wire.MaxStages {
		d.stats.Stages = append(d.stats.Stages, st)
	}
	return d.settle(), nil
}

// settle ends an ended session once every stage has accounted for itself.
func (d *decoding) settle() []action {
	if !d.ended || d.reason == "" || len(d.closing) > 0 {
		return nil
	}
	reason := d.reason
	d.reason = ""
	return []action{finish{Reason: reason}}
}

// giveUpAccounts ends the wait for accounts that don't come.
func (d *decoding) giveUpAccounts() []action {
	clear(d.closing)
	return d.settle()
}

// account returns the session's figures; with Proof also the hash over the KV
// digests of all layers, its own and those in the stages' accounts.
func (d *decoding) account() wire.SessionStats {
	st := d.stats
	if !d.open.Proof {
		return st
	}
	copy(st.LogitsHash[:], d.logitsHash.Sum(nil))
	all := blake3.New(32, nil)
	for l := range d.config.Layers {
		var h [32]byte
		switch {
		case d.held.Contains(l) && d.seq.Len(l) == d.computed:
			h = d.seq.Digest(l)
		case l < len(d.digests):
			h = d.digests[l]
		}
		if h == ([32]byte{}) {
			return st // somebody didn't account for itself
		}
		all.Write(h[:])
	}
	copy(st.KVHash[:], all.Sum(nil))
	return st
}
