package node

import (
	"cmp"
	"encoding/hex"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/starling-swarm/starling/node/control"
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

// account makes the client's account of a finished session.
func (s *clientSession) account(d *wire.Done) *control.Account {
	st := &d.Stats
	a := &control.Account{Session: s.id.String(), Model: s.model.String(), Reason: d.Reason, Stop: s.stops.Found, Text: string(s.whole), PromptTokens: s.prompt, Reused: int(st.Reused), NewTokens: s.made,
		TTFT: s.ttft, Prefill: time.Duration(st.PrefillNanos), Handoff: time.Duration(st.HandoffNanos), Decode: time.Duration(st.DecodeNanos),
		Recovered: append(s.notes, st.Recovered...), Epoch: st.Epoch.String(), KV: s.req.KV, Seam: s.req.Seam}
	a.Guessed, a.Accepted = int(st.Guessed), int(st.Accepted)
	a.Switched, a.Switch = int(st.Switched), duration(st.SwitchNanos)
	if st.Generated > 1 && st.DecodeNanos > 0 {
		a.DecodeTokensS = float64(st.Generated-1) / time.Duration(st.DecodeNanos).Seconds()
	}
	if s.req.Proof {
		a.LogitsHash, a.KVHash = hex.EncodeToString(st.LogitsHash[:]), hex.EncodeToString(st.KVHash[:])
	}
	a.Decoder = stageAccount(st.Decoder, s.req.Proof, "")
	for i, x := range st.Stages {
		to := st.Decoder.Peer
		for _, y := range st.Stages {
			if y.First == x.Last {
				to = y.Peer
			}
		}
		a.Stages = append(a.Stages, stageAccount(st.Stages[i], s.req.Proof, to))
	}
	slices.SortFunc(a.Stages, func(x, y control.StageAccount) int {
		return cmp.Or(cmp.Compare(x.Layers.First, y.Layers.First), strings.Compare(x.Peer, y.Peer))
	})
	return a
}

func stageAccount(x wire.StageStats, proof bool, to string) control.StageAccount {
	a := control.StageAccount{Peer: x.Peer, Layers: control.Layers{First: int(x.First), Last: int(x.Last) - 1}, Tokens: int(x.Tokens), Chunks: int(x.Chunks),
		Compute: time.Duration(x.ComputeNanos), WaitInput: time.Duration(x.InputNanos), WaitCredit: time.Duration(x.CreditNanos),
		WaitRows: time.Duration(x.RowsNanos), SeamBytes: int64(x.SeamBytes), KVBytes: int64(x.KVBytes), To: to}
	for _, t := range x.Times {
		a.Timeline = append(a.Timeline, control.ChunkTimes{Start: int(t.Start), Count: int(t.Count), Ready: duration(t.Ready), Began: duration(t.Began),
			Ended: duration(t.Ended), Pushed: duration(t.Pushed), Imported: duration(t.Imported)})
	}
	if x.ComputeNanos > 0 {
		a.TokensS = float64(x.Tokens) / a.Compute.Seconds()
	}
	if proof && to != "" {
		a.SeamHash = hex.EncodeToString(x.SeamHash[:])
	}
	return a
}

// duration returns nanoseconds that came from elsewhere.
func duration(ns uint64) time.Duration { return time.Duration(min(ns, math.MaxInt64)) }
