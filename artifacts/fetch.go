package artifacts

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/anacrolix/torrent"
)

// peerPoll is how often a fetch asks for the peers that have the model.
const peerPoll = time.Second

// Fetch gets the bytes of spans that are not held yet, whole pieces, and returns when all of them
// were verified and recorded. It seeds the model from then on.
//
// peers returns the IDs of peers that may have the model; it is called at once and then every
// second, from one goroutine. Where nobody is one, or a second brings nothing, the model's web seeds
// are asked, too. progress, if not nil, is called from the same goroutine with the
// verified bytes of the pieces that cover the spans.
//
// It ends early when ctx does, or when the disk refuses; what was verified by then stays, and
// another Fetch goes on from there. Wrong bytes get their sender banned, not an error. Several
// fetches of one model can run at the same time.
func (t *Torrents) Fetch(ctx context.Context, m *Model, spans []Span, peers func() []string, progress func(done, total int64)) error {
	if err := t.fetch(ctx, m, spans, peers, progress); err != nil {
		return fmt.Errorf("fetch model %s: %w", m.id.Short(), err)
	}
	return nil
}

// FetchHeader gets the beginning of every part, as far as the metadata, tokenizer and tensor table
// reach, and returns the model's card. peers and progress are as for Fetch; the total is not known
// before the header is there, and grows.
func (t *Torrents) FetchHeader(ctx context.Context, m *Model, peers func() []string, progress func(done, total int64)) (*Card, error) {
	for {
		card, need, err := m.readHeader()
		if err != nil {
			return nil, fmt.Errorf("fetch model %s: its header: %w", m.id.Short(), err)
		}
		if card != nil {
			return card, nil
		}
		if err := t.Fetch(ctx, m, need, peers, progress); err != nil {
			return nil, err
		}
	}
}

func (t *Torrents) fetch(ctx context.Context, m *Model, spans []Span, peers func() []string, progress func(done, total int64)) error {
	sm, err := t.add(m)
	if err != nil {
		return err
	}
	man := m.Manifest()
	runs := man.pieceRuns(spans)
	if len(runs) == 0 {
		return errors.New("no bytes were asked for: the layer range is not one of this model")
	}
	var total int64
	for _, r := range runs {
		for i := r.first; i < r.last; i++ {
			total += man.pieceSpan(r.part, i).Length
		}
	}
	missing := m.Missing(spans)
	if m.clearProblem() {
		sm.refresh(missing)
	}
	if err := m.store.checkRoom(m.dir, SpanBytes(missing)); err != nil {
		return err
	}
	if len(missing) > 0 && m.Published() {
		return changedError(m.Path(), nil)
	}
	want := man.pieceRuns(missing)
	t.want(sm, want, +1)
	defer t.want(sm, want, -1)

	others := t.startSources(ctx, sm, spans)
	defer others.end()
	tick := time.NewTicker(peerPoll)
	defer tick.Stop()
	t.spread(sm, want)
	known := peers()
	t.addPeers(sm, want, known)
	if len(known) == 0 {
		others.begin()
	}
	lastLeft, stalls := int64(-1), 0
	for {
		changed := m.watch()
		left := SpanBytes(m.Missing(spans))
		t.spread(sm, want)
		if progress != nil {
			progress(total-left, total)
		}
		if left == 0 {
			sm.refresh(spans)
			return m.sync()
		}
		if err := m.Problem(); err != nil {
			return fmt.Errorf("%w; %d of %d bytes are verified and kept: put that right and fetch again", err, total-left, total)
		}
		select {
		case <-sm.gone:
			return fmt.Errorf("the model was dropped or the node stops; %d of %d bytes are verified and kept", total-left, total)
		case <-ctx.Done():
			return t.unfinished(ctx, sm, want, total-left, total, others.complaints())
		case <-changed:
		case <-tick.C:
			if left == lastLeft {
				sm.refresh(m.Missing(spans)) // after an error the library may learn late what is not recorded
				t.nudge(sm, m.Missing(spans), stalls)
				stalls++
				others.begin()
			}
			lastLeft = left
			known = peers()
			t.addPeers(sm, want, known)
			if len(known) == 0 && others.over() {
				return fmt.Errorf("%d of %d bytes are here and kept, and nobody is left to ask%s", total-left, total, others.complaints())
			}
		}
	}
}

// unfinished says how far a fetch came before its context ended, and why no further.
func (t *Torrents) unfinished(ctx context.Context, sm *swarmModel, want []pieceRun, done, total int64, complaints string) error {
	if err := sm.model.sync(); err != nil {
		return err
	}
	conns := 0
	for _, r := range want {
		conns += len(sm.parts[r.part].PeerConns())
	}
	hint := ""
	if conns == 0 {
		hint = "; no peer that has them could be reached"
	}
	return fmt.Errorf("%d of %d bytes are here and kept%s%s: %w", done, total, hint, complaints, context.Cause(ctx))
}

// want adds delta to the number of fetches that want the pieces, and has the library fetch those
// that are wanted. The beginning of a part comes first: it has the header.
func (t *Torrents) want(sm *swarmModel, runs []pieceRun, delta int32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if sm.isGone() {
		return
	}
	for _, r := range runs {
		tor, wanted := sm.parts[r.part], sm.wanted[r.part]
		if delta > 0 {
			tor.AllowDataDownload()
		}
		begin := r.first // of the pieces before i that become wanted or unwanted
		for i := r.first; i < r.last; i++ {
			wanted[i] += delta
			if turned := wanted[i] == max(delta, 0); !turned || sm.claimed[r.part][i] {
				setWanted(tor, begin, i, delta > 0)
				begin = i + 1
			}
		}
		setWanted(tor, begin, r.last, delta > 0)
	}
}

// setWanted starts or stops the fetching of the pieces [begin, end).
func setWanted(tor *torrent.Torrent, begin, end int, wanted bool) {
	switch {
	case begin >= end:
	case !wanted:
		tor.CancelPieces(begin, end)
	default:
		if begin == 0 {
			tor.Piece(0).SetPriority(torrent.PiecePriorityHigh)
		}
		tor.DownloadPieces(begin, end)
	}
}

// nudge makes the library think again about what to request, for some of the missing pieces, others
// at each round. v1.62.0 cancels all requests when a write fails, asks for none of them before the
// peer has acknowledged that, and does not ask on the acknowledgement either: a connection all of
// whose pieces were requested then sits idle for ever. A piece that becomes wanted sets it going;
// connections that wait for answers are left alone.
func (t *Torrents) nudge(sm *swarmModel, missing []Span, round int) {
	const most = 256
	t.mu.Lock()
	defer t.mu.Unlock()
	if sm.isGone() {
		return
	}
	runs := sm.model.Manifest().pieceRuns(missing)
	n := 0
	for _, r := range runs {
		n += r.last - r.first
	}
	skip, left := 0, most
	if n > most {
		skip = round * most % n
	}
	for _, r := range runs {
		for i := r.first; i < r.last && left > 0; i++ {
			if skip > 0 {
				skip--
				continue
			}
			left--
			if sm.wanted[r.part][i] > 0 && !sm.claimed[r.part][i] {
				p := sm.parts[r.part].Piece(i)
				p.SetPriority(torrent.PiecePriorityNone)
				p.SetPriority(torrent.PiecePriorityNormal)
			}
		}
	}
}

// addPeers tells the torrents of the wanted parts who may have them. It also lets them fetch again
// if a write error of an earlier fetch, reported late, has stopped them.
func (t *Torrents) addPeers(sm *swarmModel, runs []pieceRun, ids []string) {
	infos := make([]torrent.PeerInfo, 0, len(ids))
	for _, id := range ids {
		addr, err := t.peers.addrOf(id)
		if err != nil {
			break
		}
		infos = append(infos, torrent.PeerInfo{Addr: addr, Source: torrent.PeerSourceDirect})
	}
	last := -1
	for _, r := range runs {
		if r.part != last {
			sm.parts[r.part].AllowDataDownload()
			sm.parts[r.part].AddPeers(infos)
			last = r.part
		}
	}
}
